"""memonger's plugin in the running MXNet: loading, switching, recording.

``libmemonger_mxnet.so`` adds exact recomputation, better storage, frugal operators and the capture
of memory plans. It is loaded only into the MXNet that it was built for. It registers its operators
after checks of version, compiler stamp, symbols, and a self-check that exchanges live objects. A
refusal leaves MXNet unchanged.

Every planning call loads it, and so does MXNet when it reads a planned symbol
(:mod:`memonger.mx.plugin.symbol_hooks`).
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from ...util import gpu_kernels
from ...util.errors import MemongerError, PluginABIError, PluginError
from ...util.native_libraries import (
    MXNET_VERSION,
    check_interface,
    elf_section,
    folder,
    library_path,
)
from ...util.plugin_build import build_plugin

_INTERFACE = 4
_COMPILER = "GCC: (GNU) 4.8.5"
_WHEELS = "pip install mxnet==%s (or mxnet-cu112==%s)" % (MXNET_VERSION, MXNET_VERSION)
_lock = threading.RLock()
_plugin: Optional[ctypes.CDLL] = None
_refused: Optional[PluginError] = None
_switches = {"recompute": False, "storage": False, "arena": False}


def load() -> None:
    """Load the plugin into the running MXNet and switch it on; later calls do nothing.

    Raises
    ------
    PluginMissing
        If the library was not built.
    PluginABIError
        If this MXNet, or the library, is not the expected one.
    """
    global _plugin, _refused
    with _lock:
        if _plugin is not None:
            return
        if _refused is not None:
            raise _refused
        try:
            _plugin = _guarded_load()
        except PluginABIError as error:
            _refused = error  # what was refused once is not tried again
            raise
        if os.environ.get("MEMONGER_DISABLE", "") in ("", "0"):
            enable()


def _guarded_load() -> ctypes.CDLL:
    from .environment import mxnet
    mx = mxnet()
    if mx.__version__ != MXNET_VERSION:
        raise PluginABIError("the plugin is made for MXNet %s, this is %s; %s"
                             % (MXNET_VERSION, mx.__version__, _WHEELS))
    from mxnet.base import _LIB
    check_compiler(_LIB._name)
    path = _plugin_path()
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise PluginABIError("%s does not fit this MXNet or is damaged (%s); reinstall memonger"
                             % (path, error)) from error
    for name in ("memonger_interface_version", "memonger_self_check", "memonger_register"):
        if not hasattr(library, name):
            raise PluginABIError("%s is not memonger's plugin: it has no %s; reinstall memonger"
                                 % (path, name))
    check_interface(library, "memonger_interface_version", _INTERFACE, path)
    message = ctypes.create_string_buffer(1024)
    if library.memonger_self_check(message, ctypes.c_size_t(1024)):
        raise PluginABIError("the libmxnet.so in this process is not the one of the MXNet %s "
                             "wheel (%s); %s" % (MXNET_VERSION, _words(message), _WHEELS))
    if library.memonger_register(message, ctypes.c_size_t(1024)):
        raise PluginABIError("the plugin could not be registered: %s" % _words(message))
    library.memonger_capture_end.restype = ctypes.c_size_t
    _expose_operators()
    from .executor_hooks import watch
    watch(library, lambda: backend() == "plugin", lambda: _switches["arena"])
    return library


def _plugin_path() -> Path:
    """Where the library lies, which is built now where the package came without it."""
    name = "libmemonger_mxnet.so"
    built = None if (folder() / name).exists() else build_plugin(name)
    return library_path(name, built.parent if built else None)


def _words(message: Any) -> str:
    """What the plugin wrote into a buffer."""
    return str(message.value.decode(errors="replace"))


def check_compiler(library: str) -> None:
    """Raise PluginABIError unless the ELF file was compiled by the wheel's compiler."""
    try:
        stamps = elf_section(library, b".comment").strip(b"\0").split(b"\0")
    except (OSError, ValueError, IndexError, OverflowError, struct.error) as error:
        raise PluginABIError("cannot read %s (%s); %s" % (library, error, _WHEELS)) from error
    compilers = [stamp.decode(errors="replace") for stamp in stamps]
    if not any(stamp.startswith(_COMPILER) for stamp in compilers):
        raise PluginABIError("%s was compiled by %s, not by the %s of the MXNet %s wheel; the "
                             "plugin cannot share objects with it; %s"
                             % (library, ", ".join(filter(None, compilers)) or "another compiler",
                                _COMPILER, MXNET_VERSION, _WHEELS))


def _expose_operators() -> None:
    """Make ``mx.sym.memonger_*`` and ``mx.nd.memonger_*`` of the newly registered operators."""
    from mxnet.base import _LIB, OpHandle, c_str, check_call, py_str
    count = ctypes.c_uint()
    names = ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    ours = [name for name in (py_str(names[i]) for i in range(count.value))
            if name.startswith("memonger_")]
    for module in ("ndarray", "symbol"):
        make = getattr(sys.modules["mxnet.%s.register" % module], "_make_%s_function" % module)
        for name in ours:
            handle = OpHandle()
            check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
            function = make(handle, name, name)
            for target in ("mxnet.%s.op" % module, "mxnet.%s" % module):
                setattr(sys.modules[target], name, function)


def available() -> bool:
    """Whether the plugin is loaded, or can be: then it is loaded now.

    Returns
    -------
    bool
    """
    try:
        load()
    except MemongerError:
        return False
    return True


def status() -> str:
    """One line that says what is loaded, or why nothing is.

    Returns
    -------
    str
    """
    try:
        load()
    except MemongerError as error:
        return "not loaded: %s" % error
    assert _plugin is not None
    return "loaded from %s; exact recomputation %s, storage planning %s" % (
        os.path.dirname(_plugin._name),
        *("on" if _switches[key] else "off" for key in ("recompute", "storage")))


def gpu_compiler() -> str:
    """Version and library of the NVRTC that compiles our operators' kernels on a GPU.

    Returns
    -------
    str

    Raises
    ------
    PluginError
        If the plugin is not loaded, or there is no NVRTC.
    """
    load()
    return gpu_kernels.compiler()


def enable(recompute: bool = True, storage: bool = True, arena: bool = True) -> None:
    """Switch passes of the plugin on or off, for everything bound from now on.

    Parameters
    ----------
    recompute : bool
        Exact recomputation for ``force_mirroring`` and memonger's own attributes.
    storage : bool
        The best assignment of storage ids instead of MXNet's.
    arena : bool
        Executors of planned symbols that ask for it get one piece of memory with their tensors at
        offsets. Needs ``storage``.

    Raises
    ------
    PluginMissing, PluginABIError
        If the plugin cannot be loaded.
    """
    load()
    assert _plugin is not None
    _plugin.memonger_enable(int(bool(recompute)), int(bool(storage)))
    _switches.update(recompute=recompute, storage=storage, arena=storage and arena)


def disable() -> None:
    """Switch back to stock MXNet for everything bound from now on; frugal operators stay usable."""
    if _plugin is not None:
        enable(False, False, False)


@contextlib.contextmanager
def switched(recompute: bool, storage: bool, arena: bool = False) -> Iterator[None]:
    """:func:`enable` for a ``with`` block; afterwards the former switches are back.

    Parameters
    ----------
    recompute, storage, arena : bool
        As for :func:`enable`.

    Raises
    ------
    PluginMissing, PluginABIError
        If the plugin cannot be loaded.
    """
    load()
    before = dict(_switches)
    enable(recompute, storage, arena)
    try:
        yield
    finally:
        enable(**before)


def backend() -> str:
    """"plugin" or "stock": who runs ``force_mirroring`` in this process.

    Returns
    -------
    str
    """
    return "plugin" if _plugin is not None and _switches["recompute"] else "stock"


def storage_model() -> str:
    """"arena", "best" or "stock": how storage is assigned in this process, at most.

    Returns
    -------
    str
    """
    if _plugin is None or not _switches["storage"]:
        return "stock"
    return "arena" if _switches["arena"] else "best"


@contextlib.contextmanager
def capture() -> Iterator[List[Dict[str, Any]]]:
    """Record every memory plan that MXNet makes in this thread inside the block.

    Blocks nest, and memonger's calls that read a network are such blocks: the outer one has what
    they record, too.

    Yields
    ------
    list
        Empty inside the block; after it one dictionary for each plan (``plugins/README.md``).
    """
    load()
    assert _plugin is not None
    records: List[Dict[str, Any]] = []
    _plugin.memonger_capture_begin()
    try:
        yield records
    finally:
        size = _plugin.memonger_capture_end()
        buffer = ctypes.create_string_buffer(size)
        _plugin.memonger_capture_read(buffer, ctypes.c_size_t(size))
        records.extend(json.loads(buffer.value.decode(errors="replace")))
