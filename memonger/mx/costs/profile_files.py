"""Files of measured op times: one JSON file for each device and software that they hold for.

The file names the device, CPU model, number of threads and versions; times measured under other
circumstances are never used. Written whole or not at all; new measurements join older ones.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from typing import Any, Dict, Mapping, Optional

from ...graph.types import MAX_TIME_S
from ...util.errors import InputError
from ...util.files import cache_folder, write_whole
from ...util.json_files import parse_json, read_text
from .models import Profile, roofline

SCHEMA = 1


def default_path(facts: Mapping[str, Any]) -> str:
    """The file for a device and software, as ``mx.profile.circumstances`` describes them."""
    text = json.dumps(dict(facts), sort_keys=True)
    readable = re.sub(r"[^a-z0-9]+", "-", str(facts.get("device", "device")).lower()).strip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return os.path.join(cache_folder("profiles"), "%s-%s.json" % (readable[:40], digest))


def load_profile(path: str) -> Profile:
    """Read a profile.

    Raises InputError if the file is not there, damaged, or not a profile.
    """
    try:
        data = parse_json(read_text(path))
    except InputError as error:
        raise InputError("%s is no profile: %s; run `memonger profile` to make one"
                         % (path, error)) from error
    if not isinstance(data, dict) or data.get("kind") != "memonger profile":
        raise InputError("%s is not a profile of memonger" % path)
    if data.get("schema") != SCHEMA:
        raise InputError("%s has the schema %r; this memonger reads %d: measure again"
                         % (path, data.get("schema"), SCHEMA))
    try:
        times, facts = dict(data["times_s"]), dict(data["facts"])
        fallback = roofline(str(data["fallback"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("the profile %s is damaged: %s: %s"
                         % (path, type(error).__name__, error)) from error
    wrong = [key for key, value in times.items()
             if type(value) not in (int, float) or not 0 <= value < MAX_TIME_S]
    if wrong:
        raise InputError("the profile %s is damaged: the time of %s is %r"
                         % (path, wrong[0], times[wrong[0]]))
    return Profile(str(facts.get("device", "unknown")), times, fallback, facts)


def find_profile(facts: Mapping[str, Any], path: Optional[str] = None) -> Optional[Profile]:
    """The stored profile for exactly this device and software; None without one.

    Raises InputError if ``path`` is given and holds a profile of another device or software.
    """
    file = path or default_path(facts)
    if not os.path.isfile(file):  # a device such as /dev/stdout is only written
        return None
    try:
        profile = load_profile(file)
    except InputError:
        if path:
            raise
        return None  # a damaged cache is measured again
    if dict(profile.facts) != dict(facts):
        if path:
            different = sorted(k for k in {*profile.facts, *facts}
                               if profile.facts.get(k) != facts.get(k))
            raise InputError("%s was measured under other circumstances: %s" % (
                path, ", ".join("%s is %r, here %r" % (k, profile.facts.get(k), facts.get(k))
                                for k in different)))
        return None
    return profile


def save_profile(profile: Profile, path: Optional[str] = None) -> str:
    """Write a profile whole or not at all; its path.

    Raises MemongerError if it cannot be written.
    """
    file = path or default_path(profile.facts)
    with contextlib.suppress(OSError):  # write_whole() says what is wrong
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
    data: Dict[str, Any] = {
        "kind": "memonger profile", "schema": SCHEMA, "facts": dict(profile.facts),
        "fallback": profile.fallback.device.name,
        "times_s": {key: float("%.4g" % profile.times_s[key]) for key in sorted(profile.times_s)}}
    write_whole(file, json.dumps(data, indent=1, sort_keys=True) + "\n")
    return file
