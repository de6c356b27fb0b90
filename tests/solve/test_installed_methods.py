"""Methods of installed packages, and planning where there is no MXNet."""
from __future__ import annotations

import json
import os

import pytest
from forked import paths, python

METHOD = '''
from memonger.graph.schedule import expand
from memonger.solve.result import build_plan

def everything_again(graph, budget_bytes, options):
    again = {op: {} for op, o in enumerate(graph.ops) if o.recomputable}
    return build_plan(graph, expand(graph, again), "again", options, budget_bytes)
'''
GRAPH = {"nodes": [{"id": i, "cost_ram": 10, "cost_cpu": 1, "backward": i > 2} for i in range(6)],
         "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2},
                   {"source": 2, "target": 3}, {"source": 3, "target": 4},
                   {"source": 1, "target": 4}, {"source": 4, "target": 5},
                   {"source": 0, "target": 5}]}
#: Imports of MXNet fail.
WITHOUT_MXNET = "import sys; sys.modules['mxnet'] = None\n"


@pytest.fixture
def site(tmp_path):
    """A folder with a package that brings a method, and a graph."""
    (tmp_path / "mine.py").write_text(METHOD)
    information = tmp_path / "mine-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[memonger.methods]\nagain = mine:everything_again\n")
    (tmp_path / "graph.json").write_text(json.dumps(GRAPH))
    return tmp_path


def run(site, code):
    found = python("-c", WITHOUT_MXNET + code, folder=str(site),
                   PYTHONPATH=os.pathsep.join([str(site), paths(os.environ)]))
    assert found.returncode == 0, found.stdout
    return found.stdout.strip()


def test_a_method_of_an_installed_package_plans_on_the_command_line(site):
    code = ("from memonger.cli import main; sys.exit(main(['plan', 'graph.json', '--method', "
            "'again', '--json']))")
    assert json.loads(run(site, code))["method"] == "again"


def test_the_call_without_mxnet_has_the_totals_of_the_command_line(site):
    called = run(site, "import memonger; p = memonger.plan('graph.json', budget=0.9)\n"
                 "print(p.total_bytes, p.graph.name, p.graph)")
    printed = run(site, "from memonger.cli import main; sys.exit(main(['plan', 'graph.json', "
                  "'--budget', '0.9', '--json']))")
    assert called == "%d graph <Graph graph: 6 ops, 6 tensors, 0 variants>" % (
        json.loads(printed)["total_bytes"])


def test_what_only_networks_have_is_refused(site):
    code = ("import memonger\ntry:\n    memonger.plan('graph.json', optimizer='sgd')\n"
            "except memonger.errors.InputError as error:\n    print(error)")
    assert run(site, code) == "a graph has its own sizes and times, so it takes no optimizer"
