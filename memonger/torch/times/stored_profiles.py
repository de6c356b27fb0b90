"""What :func:`memonger.torch.profile` measured, kept for ``costs="auto"`` of later calls.

One file for each device, number of threads and version of PyTorch, in the folder
``torch-profiles`` of the user's cache. New measurements join older ones.
"""
from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, Optional

import torch
import torch.fx as fx

from ...util.errors import MemongerError
from ...util.files import cache_folder, write_whole
from ...util.json_files import parse_json, read_text
from ..capture.costs import signatures
from .profile import Profile, device_of_joint, runs_alone


def keep(profile: Profile) -> None:
    """Add a profile, of times or of bytes alone, to what is stored for its device.

    Raises MemongerError if the file cannot be written.
    """
    path = _path(profile.device)
    older = _load(path) or Profile()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_whole(path, json.dumps({
        "device": profile.device, "times_s": {**older.times_s, **profile.times_s},
        "temporary_bytes": {**older.temporary_bytes, **profile.temporary_bytes}}))


def stored(joint: fx.GraphModule) -> Profile:
    """What is known of a joint graph's ops on its device: times of all or none, bytes of any."""
    device = device_of_joint(joint)
    profile = _load(_path(device)) or Profile()
    keys = {key for node in joint.graph.nodes if runs_alone(node) for key in signatures(node)}
    known = profile.known_bytes
    return Profile(device, {key: profile.times_s[key] for key in keys}
                   if keys <= set(profile.times_s) else {},
                   {key: known[key] for key in keys if key in known})


def fingerprint() -> str:
    """A hash of all that is stored: what plans made with ``costs="auto"`` depend on."""
    digest, folder = hashlib.sha256(), cache_folder("torch-profiles")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        digest.update(read_text(os.path.join(folder, name)).encode())
    return digest.hexdigest()


def _path(device: str) -> str:
    facts = "%s-%d-%s" % (device, torch.get_num_threads(), torch.__version__)
    readable = "".join(c if c.isalnum() else "-" for c in facts.lower())
    return os.path.join(cache_folder("torch-profiles"), readable + ".json")


def _load(path: str) -> Optional[Profile]:
    """A stored profile; None where there is none, or a damaged one, which is measured again."""
    if not os.path.exists(path):
        return None
    try:
        data = parse_json(read_text(path))
        profile = Profile(str(data["device"]), _numbers(data["times_s"], float),
                          _numbers(data["temporary_bytes"], int))
    except (MemongerError, KeyError, TypeError, ValueError):
        return None
    return profile


def _numbers(values: Dict[str, Any], kind: type) -> Dict[str, Any]:
    wrong = [v for v in values.values() if type(v) not in (int, kind) or not 0 <= v < 1e18]
    if wrong:
        raise ValueError("no number: %r" % wrong[0])
    return dict(values)
