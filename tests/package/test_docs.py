"""What README.md and docs/ say is what happens: their examples run, their outputs are real.

Python blocks and console blocks of a page run one after the other in one empty folder. In a console
block the lines after ``$ command`` are what the command prints; ``pytest --overwrite`` writes them
anew.
Durations differ from run to run and are not compared; nor are the lines about the proven bound and
the numbers of recomputed ops and variants: a slow machine's search ends elsewhere, as good. So
extra times may differ a little, too.
"""
from __future__ import annotations

import html
import importlib
import json
import re
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import List, NamedTuple, Tuple

import pytest
from forked import Forks

import memonger
from memonger.cli import commands

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXTRA = re.compile(r"\(([+-]\d+\.\d) %\)")
_DURATION = re.compile(r"\d+(\.\d+)? (s|ms|µs)\b")


class Block(NamedTuple):
    language: str
    text: str
    span: Tuple[int, int]


def blocks(text: str) -> List[Block]:
    return [Block(m.group(1), m.group(2), m.span(2)) for m in BLOCK.finditer(text)]


def run_example(words: str, folder: Path, forked: Forks) -> str:
    """What a program of examples/ prints to standard output, or its errors when it fails."""
    name, *arguments = words.split()
    path = str(ROOT / "examples" / name)
    return printed(forked.run("import runpy, sys; sys.argv[:] = %r; runpy.run_path(%r, None, "
                              "'__main__')" % ([path, *arguments], path), str(folder)))


def printed(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode:
        error = done.stderr[done.stderr.find("error: "):]
        return done.stdout + error + "exit code %d\n" % done.returncode
    return done.stdout


def replay(console: str, folder: Path, forked: Forks) -> str:
    """The console block with what its commands print now."""
    lines = []
    for line in console.splitlines():
        if line.startswith("$ "):
            words = shlex.split(line[2:])
            assert words[0] == "memonger", "a console block runs memonger only: %r" % line
            lines += [line + "\n", printed(forked.command(words[1:], str(folder), COLUMNS="80"))]
    return "".join(lines)


def without_durations(text: str) -> str:
    lines = [re.sub(r"\d+(\.\d+)?", "N", line) if line.startswith("recomputed ") else line
             for line in text.splitlines() if not line.startswith("proof:")]
    text = _EXTRA.sub("(EXTRA)", "\n".join(lines))
    return re.sub(r" +", " ", _DURATION.sub("TIME", text))


def extra_times(text: str) -> List[float]:
    return [float(found) for found in _EXTRA.findall(text)]


def has_examples(page: Path) -> bool:
    """The examples of the page about PyTorch run in tests/torch."""
    return page.name != "torch.md" and any(
        block.language in ("python", "console") for block in blocks(page.read_text("utf-8")))


@pytest.mark.parametrize("page", list(filter(has_examples, PAGES)), ids=lambda page: page.name)
def test_the_examples_of_the_documents_run_and_print_what_they_say(page, tmp_path, request,
                                                                    forked_as_users):
    text = page.read_text(encoding="utf-8")
    replacements = []
    for block in blocks(text):
        if block.language == "python":
            output = printed(forked_as_users.run(block.text, str(tmp_path)))
            assert "exit code" not in output, output
        elif block.language == "console":
            now = replay(block.text, tmp_path, forked_as_users)
            replacements.append((block.span, now))
            if not request.config.getoption("--overwrite"):
                assert without_durations(now) == without_durations(block.text)
                assert extra_times(now) == pytest.approx(extra_times(block.text), abs=0.5)
    if request.config.getoption("--overwrite"):
        for (start, end), now in reversed(replacements):
            text = text[:start] + now + text[end:]
        page.write_text(text, encoding="utf-8")


def test_every_command_is_in_the_guide():
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for kind in commands():
        assert "| `memonger %s` |" % kind.name in text, kind.name


def test_the_readme_is_short_and_names_set_up_commands_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)\b", text, re.MULTILINE))
    assert {"demo", "test", "docs"} <= targets and text.count("\n") < 150
    for target in targets:
        assert re.search(r"^%s:" % target, makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_reference_has_the_names_that_users_import():
    hooks = runpy.run_path(str(ROOT / "tools" / "docs_hooks.py"))
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.M)
    assert len(named) > 30
    for path in named:
        inside, _, name = path.rpartition(".")
        public = hooks["PUBLIC"].get(inside if path not in hooks["PUBLIC"] else path)
        assert public, path
        if public.startswith("memonger.torch"):  # PyTorch need not be installed here
            source = (ROOT / (inside.replace(".", "/") + ".py")).read_text("utf-8")
            assert re.search(r"^(def|class) %s\b" % name, source, re.M), path
        elif path not in hooks["PUBLIC"]:
            imported = getattr(importlib.import_module(public), name)
            assert imported is getattr(importlib.import_module(inside), name), path
    shown = hooks["on_page_content"](
        '<h3 id="memonger.mx.calls.plan.plan" class="doc doc-heading">\n<code class="x">plan')
    assert shown.endswith('<code class="x">memonger.plan')


def test_the_site_has_a_folder_for_each_version(tmp_path):
    hooks = runpy.run_path(str(ROOT / "tools" / "docs_hooks.py"))
    config = hooks["on_config"]({"site_dir": str(tmp_path)})
    assert config["site_dir"] == str(tmp_path / memonger.__version__)
    for name in (memonger.__version__, "0.0.9", "0.0.10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    hooks["on_post_build"](config)
    versions = json.loads((tmp_path / "versions.json").read_text())
    assert [item["version"] for item in versions] == [memonger.__version__, "0.0.10", "0.0.9"]
    assert [item["aliases"] for item in versions] == [["latest"], [], []]
    assert memonger.__version__ + "/index.html" in (tmp_path / "index.html").read_text()


def test_the_citation_names_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", text, re.MULTILINE).group(1) == memonger.__version__
    assert re.search(r"^date-released: \d{4}-\d\d-\d\d$", text, re.MULTILINE)


def test_every_page_is_in_the_site():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"[\w-]+\.md", site)) == {path.name for path in PAGES[1:]}


@pytest.mark.parametrize("text, expected", [
    ("planned in 6.1 s", "planned in TIME"), ("214 ms  (+3 %)", "TIME (+3 %)"),
    ("3 steps", "3 steps")])
def test_durations_are_not_compared(text, expected):
    assert without_durations(text) == expected


@pytest.mark.parametrize("command", ["resnet.py --blocks 1,1,1,1 --batch 1 --budget 1KB",
                                     "lstm.py --steps 2 --layers 1 --batch 2 --budget 1KB"])
def test_examples_refuse_an_impossible_budget_in_a_line(command, tmp_path, forked_as_users):
    output = run_example(command, tmp_path, forked_as_users)
    assert output.startswith("error: no plan fits 1000 B") and "Traceback" not in output


@pytest.mark.slow
def test_too_few_epochs_on_digits_are_refused_in_a_line(tmp_path, forked_as_users):
    pytest.importorskip("sklearn")
    output = run_example("train_digits.py --epochs 1", tmp_path, forked_as_users)
    assert re.search(r"^outputs, gradients and aux states of 2 steps: the same (within rounding|"
                     r"bit for bit)$", output, re.MULTILINE)
    assert re.search(r"^error: \d+\.\d+ % of the test digits are right after --epochs 1, 97 % are "
                     r"expected after --epochs 12\nexit code 1$", output, re.MULTILINE)
    page = (tmp_path / "out" / "plan.html").read_text("utf-8")
    told, = re.findall("<th>command</th><td>(.*?)</td>", page)
    words = shlex.split(html.unescape(re.sub("<[^>]*>", "", told)))
    assert words.pop(0) == "memonger"
    done = forked_as_users.command([*words, "--time-limit", "1"], str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [
    "custom_allocator.py",
    pytest.param("gluon_train.py --epochs 1", marks=pytest.mark.slow),
    pytest.param("train_digits.py", marks=pytest.mark.slow)])
def test_examples_train_the_same_network_in_mxnets_default_environment(command, tmp_path,
                                                                       forked_as_users):
    pytest.importorskip("sklearn")
    output = run_example(command, tmp_path, forked_as_users)
    assert re.search(r"the same .*(within rounding|bit for bit)$", output, re.MULTILINE), output
    assert "exit code" not in output


def test_the_budget_that_the_gluon_example_names_is_possible():
    mx = pytest.importorskip("mxnet")
    from mxnet.gluon.model_zoo import vision
    text = (ROOT / "examples" / "gluon_train.py").read_text(encoding="utf-8")
    model, budget = re.search(r"\[--model (\w+)\] \[--budget (\d+%)\]", text).groups()
    net = vision.get_model(model, classes=10, prefix="net_")
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    plan = memonger.gluon.plan(net, (64, 3, 32, 32), budget=budget, time_limit=1)
    assert plan.total_bytes <= plan.budget_bytes
