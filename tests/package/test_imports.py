"""What may import what: CONTRIBUTING.md, "Rooms", and nothing heavy on ``import memonger``."""
from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

import pytest
from forked import python

import memonger

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(memonger.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("mxnet", "matplotlib", "highspy", "scipy", "sklearn", "pygraphviz", "graphviz")
#: Rooms that work where MXNet is not installed.
CORE = ("util", "graph", "memory", "plans", "solve", "report")


def test_rooms_and_circles():
    """The contracts in pyproject.toml: a room imports only from rooms below, without circles."""
    pytest.importorskip("importlinter")
    done = python("-c", "from importlinter.cli import lint_imports_command as run; run()",
                  "--no-cache", "--config", str(ROOT / "pyproject.toml"),
                  folder=str(PACKAGE.parent))
    assert done.returncode == 0, done.stdout


def imports_of(node: ast.AST) -> Iterator[str]:
    """Absolute names of the packages imported when a module is loaded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield child.module or ""
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports_of(child)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_are_imported_where_they_are_used(path):
    room = path.relative_to(PACKAGE).parts[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            for name in imports_of(node)}
    names = {name.split(".")[0] for name in imports_of(tree)}
    if room not in ("mx", "gluon", "zoo"):
        assert not names & set(HEAVY)
        assert "mxnet" not in {name.split(".")[0] for name in late | names}


def printed(code: str) -> str:
    """What ``code`` prints in a fresh interpreter."""
    done = python("-c", code)
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


def test_importing_memonger_and_its_core_imports_nothing_heavy():
    core = ", ".join(
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in MODULES
        if path.relative_to(PACKAGE).parts[0] in (*CORE, "cli") and path.name != "__init__.py")
    code = "import sys, memonger, %s\nprint([n for n in %r if n in sys.modules])" % (core, HEAVY)
    assert printed(code) == "[]"


def test_a_plan_of_no_mxnet_network_loads_nothing_of_that_frontend(tmp_path):
    """It is shown, explained, saved and read; `import memonger` beside no MXNet loads none, too."""
    path = str(tmp_path / "plan.json")
    code = ("import sys, memonger\n"
            "from memonger.graph.imported import parse_graph\n"
            "from memonger.plans.footprint import Footprint\n"
            "from memonger.solve import solve\n"
            "graph = parse_graph('4 3\\n10 1 1\\n10 1 1\\n1 2 0\\n1 2 0\\n0 1\\n1 2\\n2 3\\n')\n"
            "plan = solve(graph, 100, 'auto')\n"
            "plan.save(%r)\nagain = memonger.load_plan(%r)\n"
            "assert str(again) and again.explain(graph.ops[0].name) and again._repr_html_()\n"
            "assert again.symbol is None and again.symbol_json is None\n"
            "print([name for name in sys.modules if name.startswith('memonger.mx')])"
            % (path, path))
    assert printed(code) == "[]"


def test_plan_is_the_function_whatever_was_imported_first():
    pytest.importorskip("memonger.mx.calls.plan")
    code = ("from memonger.plans.plan import Plan\nimport memonger.plans.plan_file\n"
            "import memonger\n"
            "print(callable(memonger.plan), memonger.Plan is Plan)")
    assert printed(code) == "True True"


def test_unknown_names_are_refused_in_the_usual_words():
    with pytest.raises(AttributeError, match="has no attribute 'paln'"):
        memonger.paln  # noqa: B018


def test_public_names_are_listed_and_exist():
    assert set(memonger._LAZY) <= set(memonger.__all__) <= set(dir(memonger))
    assert {name for name in dir(memonger) if name[0] != "_"} == set(memonger.__all__)
    for name in set(memonger.__all__) - set(memonger._LAZY):
        assert hasattr(memonger, name), name


def test_every_public_name_leads_somewhere(forked):
    code = ("import memonger\nfor name in %r:\n    assert getattr(memonger, name) is not None\n"
            "print(memonger.plan.__name__, memonger.native.__name__)" % (memonger.__all__,))
    assert forked.run(code).stdout == "plan memonger.native\n"


#: Lazy tables of names: the package's public ones, planning methods, builders of networks, and what
#: shows plans and checks their networks.
LAZY = {"memonger/__init__.py", "memonger/solve/__init__.py", "memonger/zoo/nets/__init__.py",
        "memonger/plans/above.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_of_ours_is_imported_by_a_string(path):
    """Beside lazy tables of a package's own parts, where import-linter cannot see it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and \
                "import_module" in ast.dump(node.func):
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else "."
            ours = name.startswith((".", "memonger"))
            assert not ours or str(path.relative_to(PACKAGE.parent)) in LAZY
