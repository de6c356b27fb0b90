"""Every public name has a numpydoc docstring that agrees with its signature."""
from __future__ import annotations

import inspect
import re
from typing import Dict, Iterator, List, Set, Tuple

import pytest

import memonger
from memonger import errors

pytest.importorskip("mxnet")

SECTION = re.compile(r"^(\w+)\n-+\n", re.MULTILINE)


def public() -> Iterator[Tuple[str, object]]:
    """Public functions and classes, and the public members of these classes."""
    for name in memonger.__all__:
        found = getattr(memonger, name)
        if not inspect.ismodule(found):
            yield name, found
            continue
        for inner in getattr(found, "__all__", ("plan", "strip")):
            yield "%s.%s" % (name, inner), getattr(found, inner)


def members() -> Iterator[Tuple[str, object]]:
    from memonger.mx.calls.plan import Estimate
    from memonger.mx.check.measure import Measurement
    from memonger.mx.check.verify import Verification
    from memonger.plans.max_batch import MaxBatch
    results = [(kind.__name__, kind) for kind in (Estimate, MaxBatch, Measurement, Verification)]
    for name, kind in [*public(), *results]:
        if inspect.isclass(kind):
            for inner, found in vars(kind).items():
                if not inner.startswith("_") and isinstance(found, (property, classmethod)) \
                        or inspect.isfunction(found) and not inner.startswith("_"):
                    yield "%s.%s" % (name, inner), getattr(found, "__func__", found)


FUNCTIONS = {name: found for name, found in [*public(), *members()] if inspect.isfunction(found)}


def sections(found: object) -> Dict[str, str]:
    """Text of a docstring by its headings; the beginning under ""."""
    parts = SECTION.split(inspect.getdoc(found) or "")
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def described(text: str) -> Set[str]:
    """Names that a Parameters section describes, each line at the margin ``a, b : type``."""
    return {name.strip() for line in text.splitlines() if line[:1].strip()
            for name in line.partition(" : ")[0].split(",")}


@pytest.mark.parametrize("name", [name for name, _ in [*public(), *members()]])
def test_everything_public_says_what_it_is(name):
    text = inspect.getdoc(dict([*public(), *members()])[name]) or ""
    # A dataclass without a docstring shows its signature.
    assert re.match(r'[\w:"`].*[.:]', text.split("\n\n")[0], re.DOTALL), text
    assert not text.startswith(name.split(".")[-1] + "("), text


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_parameters_and_results_are_those_of_the_signature(name):
    found, parts = FUNCTIONS[name], sections(FUNCTIONS[name])
    signature = inspect.signature(found)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    wanted = {stars.get(p.kind, "") + p.name for p in signature.parameters.values()
              if p.name not in ("self", "cls")}
    simple = name.split(".")[0] in ("Estimate", "MaxBatch", "Measurement", "Verification")
    if wanted or not simple:
        assert described(parts.get("Parameters", "")) == wanted
    nothing = str(signature.return_annotation) in ("None", "Iterator[None]")
    if not simple:
        assert ("Returns" in parts or "Yields" in parts) != nothing
    for kind in raised(parts.get("Raises", "")):
        assert kind in errors.__all__ or kind in ("ValueError", "TypeError")


def raised(text: str) -> List[str]:
    return [kind.strip() for line in text.splitlines() if line[:1].strip()
            for kind in line.split(",")]


def test_planning_calls_say_which_errors_they_raise():
    for name in memonger.__all__:
        if inspect.isfunction(getattr(memonger, name)):
            assert raised(sections(getattr(memonger, name)).get("Raises", "")), name
