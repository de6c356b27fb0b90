"""What may import what: CONTRIBUTING.md, "Rooms", and nothing heavy on ``import memonger``."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Tuple

import pytest

import memonger

PACKAGE = Path(memonger.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("mxnet", "matplotlib", "highspy", "scipy", "sklearn", "pygraphviz", "graphviz")

#: The API and what stands above it may import everything.
UNBOUND = {"__init__", "__main__", "api", "batch", "compatible", "planning", "session", "cli",
           "bench"}
FOLDERS = {"solve", "mx", "report"}
CORE = {p.stem for p in PACKAGE.glob("*.py")} - UNBOUND
#: The lowest rooms: all that they may import.
LOWEST = {"errors": set(), "units": {"errors"}, "native": {"errors"},
          "typed": set(), "phrases": set(), "graph": {"errors", "units", "typed"},
          "schedule": {"graph"}}
#: Texts and symbols of results are made when asked for, so that loading a module loads no view of
#: its results; the plugin meets MXNet when it is loaded; memonger.gluon and
#: stock mirroring are calls of the API.
LATE = {("plan", "report"), ("plan", "mx"), ("mx", "report"), ("native", "mx"),
        ("mx", "planning"), ("mx", "compatible"), ("mx", "session"), ("foreign", "solve")}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].replace(".py", "")


def imports_of(path: Path) -> Iterator[Tuple[str, bool]]:
    """Absolute name of each import in the file, and whether it is inside a function."""
    package = ("memonger",) + path.relative_to(PACKAGE).parts[:-1]

    def visit(node: ast.AST, late: bool) -> Iterator[Tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, late
            elif isinstance(child, ast.ImportFrom):
                base = list(package[:len(package) - child.level + 1]) if child.level else []
                module = ".".join(base + ([child.module] if child.module else []))
                for alias in child.names:
                    yield "%s.%s" % (module, alias.name), late
            elif not is_type_checking(child):
                is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
                yield from visit(child, late or is_function)
    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms(path):
    room = room_of(path)
    for name, late in imports_of(path):
        parts = name.split(".")
        if parts[0] == "memonger" and len(parts) > 1 and room not in UNBOUND:
            target = parts[1]
            if target == "__version__" or (room, target) in LATE and late:
                continue
            allowed = target in LOWEST[room] if room in LOWEST else \
                target == room or target not in UNBOUND | FOLDERS
            assert allowed, (
                "%s imports memonger.%s; CONTRIBUTING.md forbids it" % (path.name, target))
        if parts[0] == "mxnet":
            assert room in ("mx", "bench", "native"), \
                "%s imports MXNet; only mx/ does" % path.name
        if parts[0] in HEAVY:
            assert late or room in ("mx", "bench"), (
                "%s imports %s when loaded; import it where it is used" % (path.name, parts[0]))


def python(code: str, cwd: Path) -> str:
    """Run ``code`` in a fresh interpreter that sees the same memonger as this one."""
    script = "import sys; sys.path.insert(0, %r)\n%s" % (str(PACKAGE.parent), code)
    done = subprocess.run([sys.executable, "-c", script], cwd=str(cwd), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_memonger_and_its_core_imports_nothing_heavy(tmp_path):
    core = ", ".join("memonger." + name for name in sorted(CORE | {"cli"}))
    code = "import memonger, %s\nprint([n for n in %r if n in sys.modules])" % (core, HEAVY)
    assert python(code, tmp_path) == "[]"


def test_plan_is_the_function_whatever_was_imported_first(tmp_path):
    pytest.importorskip("memonger.api")
    code = ("from memonger.plan import Plan\nimport memonger.planfile\nimport memonger\n"
            "print(callable(memonger.plan), memonger.Plan is Plan)")
    assert python(code, tmp_path) == "True True"


def test_unknown_names_are_refused_in_the_usual_words():
    with pytest.raises(AttributeError, match="has no attribute 'paln'"):
        memonger.paln  # noqa: B018


def test_public_names_are_listed_and_exist():
    assert set(memonger._LAZY) <= set(memonger.__all__) <= set(dir(memonger))
    for name in set(memonger.__all__) - set(memonger._LAZY):
        assert hasattr(memonger, name), name


def test_every_public_name_leads_somewhere(tmp_path):
    pytest.importorskip("mxnet")
    code = ("import memonger\nfor name in %r:\n    assert getattr(memonger, name) is not None\n"
            "print(memonger.plan.__name__, memonger.native.__name__)" % (memonger.__all__,))
    assert python(code, tmp_path) == "plan memonger.native"
