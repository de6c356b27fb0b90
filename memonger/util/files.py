"""Files are written whole or not at all, standard output to its end or with an error."""
from __future__ import annotations

import contextlib
import glob
import os
import secrets
import sys
import time
from typing import Union

from .errors import MemongerError
from .units import format_bytes

#: Of the names of temporary files.
_ENDING = ".part"
#: No writer takes as long.
_REMAINS_AFTER_S = 3600.0


def cache_folder(name: str) -> str:
    """A folder in the user's cache, for files that memonger can make again.

    In ``$MEMONGER_CACHE_DIR``, else ``$XDG_CACHE_HOME/memonger``, else ``~/.cache/memonger``.
    """
    own = os.environ.get("MEMONGER_CACHE_DIR")
    if own:
        return os.path.join(own, name)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "memonger", name)


def write_whole(path: str, content: Union[str, bytes]) -> None:
    """Write a file so that readers see the old content or the new, never a part.

    The content goes to a temporary file in the same folder, to the disk, and then takes the
    name; what killed writers left there an hour ago is removed. A device or pipe
    (``/dev/stdout``) is written directly.

    Raises MemongerError if it cannot be written (no such folder, no permission, disk full);
    whatever was at ``path`` before is untouched.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise MemongerError("cannot write to %r; give the name of a file" % (path,))
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        target = os.path.realpath(path)  # fails where the working directory is gone
        beginning = os.path.join(os.path.dirname(target), ".%s." % os.path.basename(target))
        temporary = beginning + secrets.token_hex(8) + _ENDING
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as device:
                device.write(data)
            return
        # os.open, because tempfile would make a file that only its owner may read.
        _remove_remains(beginning)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise MemongerError(
            "cannot write %s (%s): %s; nothing was changed there"
            % (path, format_bytes(len(data)), error.strerror or error)) from error


def _remove_remains(beginning: str) -> None:
    """Remove temporary files of writers that were killed."""
    for path in glob.glob(glob.escape(beginning) + "*" + _ENDING):
        with contextlib.suppress(OSError):  # another writer removed it, or may
            if time.time() - os.path.getmtime(path) > _REMAINS_AFTER_S:
                os.unlink(path)


def write_out(text: str) -> None:
    """Write to standard output and flush, so that a full disk raises an error.

    Raises BrokenPipeError if the reader (``head``, ``less``) has seen enough.
    Raises MemongerError if it cannot be written for any other reason.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would be an error once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise MemongerError("cannot write to standard output: %s"
                            % (error.strerror or error)) from error
