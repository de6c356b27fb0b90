"""Building the plugin when it is first needed.

memonger can be installed before MXNet, whose headers the plugin is compiled against; then the
package carries the plugin's sources alone. The library goes to the user's cache, in a folder named
by the hash of these sources.
"""
from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Optional

from .errors import PluginMissing
from .files import cache_folder
from .native_libraries import folder
from .ownership import who_else_writes

#: Of what is compiled, beside the library until that is linked.
_OBJECTS = "objects"

#: Builds that failed in this process, by folder.
_failures: Dict[Path, PluginMissing] = {}


def build_plugin(name: str) -> Optional[Path]:
    """The library, built in this call or an earlier one; None in a source tree.

    Raises PluginMissing if it cannot be built, which a process tries once, or if others could have
    written it.
    """
    sources = folder() / "plugins"
    if not (sources / "build.py").exists():
        return None
    target = Path(cache_folder("plugin")) / _digest(sources)
    if target in _failures:
        raise _failures[target]
    builder = _load(sources / "build.py")
    try:
        if not (target / name).exists() or (target / _OBJECTS).exists():
            _build(builder, target, name)
        writer = who_else_writes(target / name)
    except (OSError, builder.BuildError) as error:
        _failures[target] = PluginMissing("the plugin for MXNet cannot be built in %s: %s"
                                          % (target, error))
        raise _failures[target] from error
    if writer:
        raise PluginMissing(
            "the plugin in %s is not loaded, because %s; take the right to write there away "
            "(chmod go-w), or set MEMONGER_CACHE_DIR to a folder of your own" % (target, writer))
    return target / name


def _build(builder: Any, target: Path, name: str) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    objects = target / _OBJECTS
    with open(str(target / "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it
        if (target / name).exists():
            shutil.rmtree(str(objects), ignore_errors=True)
            return
        sys.stderr.write("memonger: building its plugin for MXNet in %s, once; this takes some "
                         "minutes\n" % target)
        builder.build(target, objects, names=(name,))
        shutil.rmtree(str(objects))


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("memonger_build", str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(("%s\n" % os.path.relpath(str(path), str(sources))).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
