"""Files are written whole or not at all."""
from __future__ import annotations

import os
from typing import Union

from .errors import MemongerError
from .units import format_bytes


def write_whole(path: str, content: Union[str, bytes]) -> None:
    """Write a file so that readers see the old content or the new, never a part.

    The content goes to a temporary file in the same folder, to the disk, and then takes the
    name. A device or pipe (``/dev/stdout``) is written directly.

    Raises
    ------
    MemongerError
        If it cannot be written (no such folder, no permission, disk full); whatever was at
        ``path`` before is untouched.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        target = os.path.realpath(path)  # fails where the working directory is gone
        temporary = os.path.join(os.path.dirname(target),
                                 ".%s.%d.part" % (os.path.basename(target), os.getpid()))
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as device:
                device.write(data)
            return
        # os.open, because tempfile would make a file that only its owner may read.
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

