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
from typing import Any, Optional

from ..util.errors import PluginMissing
from ..util.files import cache_folder
from ..util.native_libraries import folder

_failure: Optional[PluginMissing] = None


def build_plugin(name: str) -> Optional[Path]:
    """The library, built in this call or an earlier one; None in a source tree.

    Raises PluginMissing if it cannot be built; a process tries once.
    """
    global _failure
    sources = folder() / "plugins"
    if not (sources / "build.py").exists():
        return None
    if _failure is not None:
        raise _failure
    builder = _load(sources / "build.py")
    target = Path(cache_folder("plugin")) / _digest(sources)
    try:
        if not (target / name).exists():
            _build(builder, target, name)
    except (OSError, builder.BuildError) as error:
        _failure = PluginMissing("the plugin for MXNet cannot be built in %s: %s" % (target, error))
        raise _failure from error
    return target / name


def _build(builder: Any, target: Path, name: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with open(str(target / "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it
        if (target / name).exists():
            return
        sys.stderr.write("memonger: building its plugin for MXNet in %s, once; this takes some "
                         "minutes\n" % target)
        builder.build(target, target / "objects", names=(name,))
        shutil.rmtree(str(target / "objects"))


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
