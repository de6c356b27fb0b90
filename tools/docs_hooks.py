"""What mkdocs does to pages: Sphinx's roles in docstrings become plain code, numbers in tables keep
their units beside them, and objects of the API have the names by which users import them."""
import json
import re
from pathlib import Path

#: The file that names the version, which the site's folder is called by.
VERSION = Path(__file__).resolve().parents[1] / "memonger" / "util" / "version.py"
#: Module that defines an object -> module that users import it from.
PUBLIC = {
    "memonger.graph.schedule": "memonger.graph.schedule",
    "memonger.graph.types": "memonger.graph.types",
    "memonger.mx.calls.buckets": "memonger",
    "memonger.mx.calls.plan": "memonger",
    "memonger.mx.calls.dmlc": "memonger",
    "memonger.gluon.blocks": "memonger.gluon",
    "memonger.plans.plan_file": "memonger",
    "memonger.mx.calls.planned": "memonger",
    "memonger.native": "memonger.native",
    "memonger.plans.plan": "memonger",
    "memonger.plans.parts": "memonger.plans.parts",
    "memonger.plans.footprint": "memonger.plans.footprint",
    "memonger.solve": "memonger.solve",
    "memonger.solve.options": "memonger.solve.options",
    "memonger.solve.result": "memonger.solve.result",
    "memonger.torch.calls.estimate": "memonger.torch",
    "memonger.torch.calls.max_batch": "memonger.torch",
    "memonger.torch.calls.plan": "memonger.torch",
    "memonger.torch.calls.compiled": "memonger.torch",
    "memonger.torch.pytorch.loss_layer": "memonger.torch",
    "memonger.util.errors": "memonger.errors",
    "memonger.zoo.ready_plans": "memonger.zoo",
}


def on_config(config, **_):
    """Each version has a folder of its own, as the theme's list of versions expects."""
    version = re.search(r'__version__ = "(.*)"', VERSION.read_text("utf-8")).group(1)
    config["site_dir"] = str(Path(config["site_dir"]) / version)
    return config


def on_post_build(config, **_):
    """The list of versions beside their folders, the newest first, and a page that leads to it."""
    site = Path(config["site_dir"]).parent
    names = sorted((path.parent.name for path in site.glob("*/index.html")), reverse=True,
                   key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    (site / "versions.json").write_text(json.dumps(
        [{"version": name, "title": name, "aliases": ["latest"] * (name == names[0])}
         for name in names]) + "\n")
    (site / "index.html").write_text(
        '<!doctype html><meta http-equiv="refresh" content="0; url=%s/index.html">\n' % names[0])


def on_page_content(html, **_):
    html = re.sub(r":(mod|func|class|meth|attr|data|exc):\s*(?=<code>)", "", html)
    html = re.sub(r"<td[^>]*>[^<]*", _with_units, html)
    html = _ROWS.sub(_described_once, html)
    return re.sub(r'(<h\d id="([\w.]+)\.\w+" class="doc doc-heading">\s*'
                  r'(?:<code[^>]*>\s*|<span class="doc[^>]*>\s*)*)', _with_module, html)


def on_post_page(output, page, **_):
    """The search of pages that are files needs no network."""
    script = "../" * page.url.count("/") + "js/file_worker.js"
    return output.replace("https://unpkg.com/iframe-worker/shim", script)


_CELL = "<td>(?:(?!</td>).)*</td>"
_ROW = r'<tr class="doc-section-item">\s*' + _CELL + "%s" + _CELL + r"\s*</tr>\s*"
#: Rows of parameters that numpydoc lists together: the same type and description.
_ROWS = re.compile(_ROW % (r"(\s*%s\s*%s\s*)" % (_CELL, _CELL)) + "(?:" + _ROW % r"\1" + ")+", re.S)


def _described_once(rows):
    """Parameters that share a description have one cell for it, and the default of the first."""
    shared, count = rows.group(1), rows.group(0).count('<tr class="doc-section-item">')
    name, first, *others = rows.group(0).split(shared)
    # mkdocstrings gives all the default of the first; the signature above has those of the others.
    others = [re.sub(_CELL, "<td></td>", other, count=1, flags=re.S) for other in others]
    return name + shared.replace("<td>", '<td rowspan="%d">' % count) + first + "".join(others)


def _with_units(cell):
    """A number and its unit stay on one line."""
    return re.sub(r"(\d) (?=%|[KMG]i?B\b|bytes\b|[mu]?s\b)", "\\1&nbsp;", cell.group(0))


def _with_module(heading):
    module = PUBLIC.get(heading.group(2))
    return heading.group(1) + (module + "." if module else "")
