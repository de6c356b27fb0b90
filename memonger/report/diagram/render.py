"""Diagrams as files, drawn by Graphviz: its program ``dot``, else the package ``pygraphviz``."""
from __future__ import annotations

import inspect
import shutil
import subprocess
import warnings
from typing import Any, List, Mapping, Tuple

from ...plans.plan import Plan
from ...util.errors import InputError, RenderError
from ...util.files import write_whole
from ...util.messages import one_line
from ..formatting import ending_of
from .dot import dot_lines, dot_text
from .folding import folded
from .model import Drawing, draw

FORMATS = ("svg", "png", "pdf", "dot")
#: Graphviz gets this long for one picture.
TIME_LIMIT_S = 120
_HINT = ("install Graphviz (Debian: apt install graphviz) or pip install pygraphviz "
         "(Python 3.10 and newer); .dot files need neither")


def render(plan: Plan, path: str, **options: Any) -> None:
    """Draw a plan into a file.

    ``path``: its ending says how: ``.svg``, ``.png``, ``.pdf`` or ``.dot``.
    ``options``: ``collapse``, ``clones``, ``parameters``; see
        :func:`memonger.report.diagram.model.draw`.
    Raises RenderError if the ending is unknown, or nothing installed can draw it; says what to
    install.
    """
    ending = ending_of(path, FORMATS)
    write_whole(path, picture(_drawn(plan, options), ending))


def diagram(plan: Plan, **options: Any) -> Any:
    """Diagram of a plan as a ``graphviz.Digraph``, as ``mx.viz.plot_network`` returns one.

    ``options``: ``collapse``, ``clones``, ``parameters``; see
        :func:`memonger.report.diagram.model.draw`.
    A notebook and its ``pipe`` draw it as :func:`render` does, by ``pygraphviz`` too; its own
    ``render`` needs ``dot``.
    Raises RenderError if the Python package ``graphviz``, which MXNet brings along, is missing.
    """
    try:
        import graphviz
    except ImportError as error:
        raise RenderError("plan.to_graphviz() needs the Python package graphviz, which MXNet "
                          "brings along (pip install 'graphviz<0.9'); memonger report --graph "
                          "draws without that package") from error
    drawing = _drawn(plan, options)

    class Diagram(graphviz.Digraph):
        """A Digraph that ``pygraphviz`` can draw, too."""

        def pipe(self, format: Any = None, *args: Any, **keywords: Any) -> bytes:
            return picture(drawing, format or self.format)

    result = Diagram("plan", format="svg")
    result.body += dot_lines(drawing)
    return result


def _drawn(plan: Plan, options: Mapping[str, Any]) -> Drawing:
    known = list(inspect.signature(draw).parameters)[1:]
    for name in options:
        if name not in known:
            raise InputError("diagrams have no option %r; there are %s" % (name, ", ".join(known)))
    drawing = draw(plan, **options)
    return folded(drawing) if options.get("collapse", True) else drawing


def picture(drawing: Drawing, ending: str) -> bytes:
    """The drawing as the bytes of a file; see :func:`render`."""
    source = dot_text(drawing)
    if ending == "dot":
        return source.encode("utf-8")
    tried: List[str] = []
    for name, renderer in _RENDERERS:
        try:
            return renderer(source, ending)
        except (OSError, subprocess.SubprocessError, ImportError, RuntimeError) as error:
            tried.append("%s: %s" % (name, one_line(error)))
    raise RenderError("cannot draw .%s files here (%s); %s" % (ending, "; ".join(tried), _HINT))


def _with_dot(source: str, ending: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise OSError("no dot on PATH")
    done = subprocess.run([program, "-T" + ending], input=source.encode("utf-8"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIME_LIMIT_S)
    if done.returncode != 0 or not done.stdout:
        raise OSError(done.stderr.decode("utf-8", "replace") or "dot failed")
    return done.stdout


def _with_pygraphviz(source: str, ending: str) -> bytes:
    import pygraphviz
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fontconfig's, on machines without fonts
        graph = pygraphviz.AGraph(string=source)
        graph.layout("dot")
        return graph.draw(format=ending)


_RENDERERS: Tuple[Tuple[str, Any], ...] = (("dot", _with_dot), ("pygraphviz", _with_pygraphviz))
