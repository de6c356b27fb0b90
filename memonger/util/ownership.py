"""Whether code in a folder can only be this user's, as OpenSSH's StrictModes asks of keys."""
from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Optional


def who_else_writes(path: Path) -> Optional[str]:
    """What lets another user put something else at ``path``; None where nothing does.

    The path and each folder above it must belong to this user or to root and be writable by nobody
    else. Folders in which only owners may rename (``/tmp``) pass, and so does the group that is
    this user's alone.

    Parameters
    ----------
    path : Path
        An existing file or folder.

    Returns
    -------
    str or None
        The path that is at fault, and why.

    Raises
    ------
    OSError
        If a part of the path cannot be looked at.
    """
    real = path.resolve()
    for part in (real, *real.parents):
        status = part.stat()
        if status.st_uid not in (0, os.geteuid()):
            return "%s belongs to user %d" % (part, status.st_uid)
        others = status.st_mode & stat.S_IWOTH or (
            status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid))
        if others and not (part.is_dir() and status.st_mode & stat.S_ISVTX):
            return "others can write to %s" % part
    return None


def _is_own_group(gid: int) -> bool:
    """Whether a group has no member but this user, and has the user's name."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}
