"""Options and fixtures for all tests."""
from __future__ import annotations

import os
import signal

# Bit for bit needs one implementation of each operator. MXNet reads these when it is loaded, so
# they stand before every other import.
os.environ.setdefault("MXNET_MKLDNN_ENABLED", "0")
os.environ.setdefault("MXNET_USE_MKLDNN_RNN", "0")  # RNN does not look at the other one, and fails
os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
# Plans must not depend on the speed of the machine that tests them.
os.environ["MEMONGER_COSTS"] = "reference"

import sys
from pathlib import Path

# Behind the installed memonger: the folder has the benchmarks, and the sources of the package.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import pytest
from forked import forks
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True, scope="session")
def interruptible():
    """A shell's background jobs are born deaf to Ctrl-C, which some tests send to themselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Profiles that the user measured must not change what tests plan, nor tests leave any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("MEMONGER_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="session")
def forked(own_cache):
    """Runs code and commands in forks of a process that has imported MXNet, and not memonger."""
    pytest.importorskip("mxnet")
    with forks(os.environ) as server:
        yield server


@pytest.fixture(scope="session")
def forked_as_users(own_cache):
    """The same with MXNet as a user has it: with MKLDNN."""
    pytest.importorskip("mxnet")
    with forks({n: value for n, value in os.environ.items() if "MKLDNN" not in n}) as server:
        yield server


def pytest_addoption(parser):
    parser.addoption("--overwrite", action="store_true",
                     help="write the golden files instead of comparing with them")


@pytest.fixture
def golden(request):
    """``golden(name, text)``: the text equals tests/golden/<name>, or becomes it (--overwrite)."""
    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--overwrite"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), "no golden file %s; make it with pytest --overwrite" % path
        assert text == path.read_text(encoding="utf-8"), (
            "differs from %s; if the new text is right: pytest --overwrite" % path)
    return compare
