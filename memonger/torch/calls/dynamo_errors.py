"""Errors of PyTorch's tracer in words: what, where in the user's code, and what helps."""
from __future__ import annotations

import re
from typing import List

from ...util.errors import InputError
from ..pytorch import private

#: Words by which PyTorch marks parts of its messages that are not for users.
_NOT_FOR_USERS = re.compile(r"\n\s*(Developer debug context:|For more details about this graph "
                            r"break|from user code:|Set TORCHDYNAMO_VERBOSE)")
_OWN = "raised exception "


def in_one_error(error: BaseException) -> InputError:
    """An error of the tracer as one that says what a user needs."""
    text = _NOT_FOR_USERS.split(str(error))[0].strip()
    first, *hints = (" ".join(part.split()) for part in re.split(r"\n\s*Hint:", text))
    what = re.sub(r" Explanation: ", ": ", first)
    helps = [hint for hint in hints if "report an issue" not in hint]
    cause = _cause(error)
    if private.is_own_failure(error):
        what = "the module fails while PyTorch traces it: %s" % cause
        helps = ["Call the module as it is to see whether it runs with these inputs; a plan is for "
                 "what PyTorch can trace as one graph."]
    elif private.graph_break(error):
        what = "PyTorch cannot read the module as one graph, and a plan is for a whole step: %s" % (
            what)
    else:
        what = "PyTorch's tracer ends with %s: %s" % (type(error).__name__, what)
        helps = helps or ["torch.compile(module, fullgraph=True) shows more; a plan is for what it "
                          "can trace as one graph."]
    text = " ".join([what.rstrip("."), *_place(error), *helps])
    return InputError(" ".join(text.split()))


def _place(error: BaseException) -> List[str]:
    """The line of the user's code; of PyTorch's where no other is known."""
    frames = private.traced_frames(error)
    own = [frame for frame in frames if not private.is_of_pytorch(frame.filename)]
    return ["(in %s:%d, %s: `%s`)." % (frame.filename, frame.lineno or 0, frame.name, frame.line)
            for frame in (own or frames)[-1:]]


def _cause(error: BaseException) -> str:
    """What was raised first, in its own words."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    text = str(error).strip()
    return text[len(_OWN):] if text.startswith(_OWN) else \
        "%s: %s" % (type(error).__name__, text)
