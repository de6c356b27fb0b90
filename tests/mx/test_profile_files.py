"""Profile files: where they lie, what they hold, and which ones are refused."""
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memonger.mx.costs.models import Profile, roofline
from memonger.mx.costs.profile_files import default_path, find_profile, load_profile, save_profile
from memonger.util.errors import InputError, MemongerError
from memonger.util.files import cache_folder

FACTS = {"device": "Abacus 3000, 2 threads", "threads": 2, "mxnet": "1.9.1"}


def some_profile(**facts):
    return Profile(FACTS["device"], {"b": 2.0, "a": 0.00012345678}, roofline("cpu"),
                   {**FACTS, **facts})


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("profiles") == os.path.join(str(tmp_path), "memonger", "profiles")
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path / "own"))
    assert cache_folder("profiles") == str(tmp_path / "own" / "profiles")
    monkeypatch.delenv("MEMONGER_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/nowhere")
    assert cache_folder("profiles") == "/nowhere/.cache/memonger/profiles"
    name = os.path.basename(default_path(FACTS))
    assert name.startswith("abacus-3000-2-threads-") and name.endswith(".json")
    assert default_path({**FACTS, "threads": 4}) != default_path(FACTS)


def test_what_is_saved_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_profile(FACTS) is None
    path = save_profile(some_profile())
    found = find_profile(FACTS)
    assert found is not None
    assert found.times_s == {"a": 0.0001235, "b": 2.0}  # four digits are kept
    assert (found.device, found.fallback, found.facts) == (
        FACTS["device"], roofline("cpu"), FACTS)
    assert json.loads(Path(path).read_text())["facts"]["mxnet"] == "1.9.1"
    assert save_profile(found) == path
    assert find_profile({**FACTS, "threads": 4}) is None


def test_times_of_another_machine_are_refused(tmp_path):
    path = str(tmp_path / "mine.json")
    save_profile(some_profile(), path)
    with pytest.raises(InputError, match="other circumstances: threads is 2, here 4"):
        find_profile({**FACTS, "threads": 4}, path)


@pytest.mark.parametrize("change, message", [
    (lambda data: data.update(kind="plan"), "not a profile"),
    (lambda data: data.update(schema=99), "measure again"),
    (lambda data: data.pop("facts"), "damaged"),
    (lambda data: data["times_s"].update(a=10 ** 400), "time of a is 1000"),
    (lambda data: data["times_s"].update(a="1"), "time of a is '1'"),
    (lambda data: data["times_s"].update(a=True), "time of a is True"),
    (lambda data: data.update(times_s=[1]), "damaged"),
    (lambda data: data.update(fallback=[]), "damaged|unknown"),
    (lambda data: data.update(fallback="abacus"), "abacus"),
    (lambda data: data["times_s"].update(a="soon"), "damaged"),
    (lambda data: data["times_s"].update(a=-1.0), "time of a"),
])
def test_damaged_files_are_refused(tmp_path, change, message):
    path = str(tmp_path / "p.json")
    save_profile(some_profile(), path)
    data = json.loads(Path(path).read_text())
    change(data)
    Path(path).write_text(json.dumps(data))
    with pytest.raises(InputError, match=message):
        load_profile(path)


def test_no_file_and_no_json(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="memonger profile"):
        load_profile(str(tmp_path / "none.json"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    os.makedirs(cache_folder("profiles"))
    Path(default_path(FACTS)).write_text("{")
    assert find_profile(FACTS) is None  # a damaged cache is measured anew
    with pytest.raises(InputError):
        find_profile(FACTS, default_path(FACTS))


def test_a_folder_that_cannot_be_made_is_named():
    with pytest.raises(MemongerError, match="cannot write /proc/none/here.json"):
        save_profile(some_profile(), "/proc/none/here.json")


def test_a_device_is_not_read_for_a_profile_to_extend():
    assert find_profile(FACTS, "/dev/zero") is None  # it has no end
