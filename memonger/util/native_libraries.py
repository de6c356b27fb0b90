"""The native libraries in ``memonger/_native``: finding, checking, loading the core.

``libmemonger_core.so`` (storage planning, search) needs no MXNet. The other,
``libmemonger_mxnet.so``, goes into the running MXNet; :mod:`memonger.mx.plugin.loading` loads it.
"""
from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import struct
import threading
from pathlib import Path
from typing import Any, Optional, Sequence

from .errors import PluginABIError, PluginMissing

MXNET_VERSION = "1.9.1"
#: How a source tree builds the core alone, and all.
_BUILD_CORE = "python plugins/build.py --core (it needs g++)"
_BUILD_ALL = "python plugins/build.py (it needs g++ and an installed MXNet %s)" % MXNET_VERSION
_CORE_INTERFACE = 9
#: ``plugins/build.py`` ends each library with this and the SHA-256 of everything before it.
_SEAL = b"memonger sha256 "
_lock = threading.Lock()
_core: Optional[ctypes.CDLL] = None


def folder() -> Path:
    """Where the libraries are looked for: ``MEMONGER_NATIVE_DIR``, else ``memonger/_native``.

    Returns
    -------
    pathlib.Path
    """
    return Path(os.environ.get("MEMONGER_NATIVE_DIR") or Path(__file__).parents[1] / "_native")


def library_path(name: str, where: Optional[Path] = None) -> Path:
    """The path of one library, in :func:`folder` unless told ``where``.

    Raises
    ------
    PluginMissing, PluginABIError
        If it was not built, or is damaged.
    """
    path = (where or folder()) / name
    if not path.exists():
        source_tree = Path(__file__).parents[2]
        raise PluginMissing("%s is not in %s; %s" % (
            name, path.parent, "reinstall memonger" if not (source_tree / "setup.py").exists() else
            "Python found the source tree %s: start it in another folder to use the installed "
            "memonger, or build here: %s" % (
                source_tree, _BUILD_CORE if "core" in name else _BUILD_ALL)))
    check_undamaged(path)
    return path


def check_undamaged(path: Path) -> None:
    """Raise PluginABIError when a library is cut short or altered since it was built.

    The dynamic loader does not look: a library cut short kills the process.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PluginABIError("cannot read %s: %s" % (path, error)) from error
    body, seal, digest = data.rpartition(_SEAL)
    if seal and len(digest) == 64:
        whole = hashlib.sha256(body).hexdigest().encode() == digest
    else:  # the seal is gone when a distributor stripped the library; then its table must be whole
        whole = len(data) >= 64 and data[:4] == b"\x7fELF" and \
            struct.unpack_from("<Q", data, 0x28)[0] + \
            struct.unpack_from("<H", data, 0x3A)[0] * struct.unpack_from("<H", data, 0x3C)[0] \
            <= len(data)
    if not whole:
        raise PluginABIError("%s is damaged; reinstall memonger, or in a source tree run: "
                             "python plugins/build.py" % path)


def core() -> ctypes.CDLL:
    """The framework-free library.

    Returns
    -------
    ctypes.CDLL

    Raises
    ------
    PluginMissing
        If it was not built.
    PluginABIError
        If it is damaged, of another memonger, or made for another machine.
    """
    global _core
    with _lock:
        if _core is None:
            path = library_path("libmemonger_core.so")
            try:
                library = ctypes.CDLL(str(path))
            except OSError as error:
                raise PluginABIError("%s cannot be loaded (%s); reinstall memonger"
                                     % (path, error)) from error
            check_interface(library, "memonger_core_interface_version", _CORE_INTERFACE, path)
            _core = library
        return _core


def check_interface(library: ctypes.CDLL, function: str, expected: int, path: Path) -> None:
    """Raise PluginABIError when a library was built from other sources than this package."""
    found = getattr(library, function)() if hasattr(library, function) else 0
    if found != expected:
        raise PluginABIError("%s was built by another memonger (interface %d, expected %d); "
                             "reinstall memonger, or in a source tree run: "
                             "python plugins/build.py" % (path, found, expected))


def array(kind: Any, values: Sequence[Any]) -> Any:
    """A C array of numbers, for functions of the core; of one element where there are none."""
    return (kind * max(1, len(values)))(*values)


def elf_section(path: str, name: bytes) -> bytes:
    """The content of a section of an ELF file; nothing where it has none of that name.

    Raises OSError, ValueError, IndexError, OverflowError or struct.error for any other file.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit ELF file")
        offset, = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
        for section in sections:
            start = sections[names][4] + section[0]
            if data[start:start + len(name) + 1] == name + b"\0":
                return bytes(data[section[4]:section[4] + section[5]])
    return b""
