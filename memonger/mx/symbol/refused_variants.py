"""Why variants that the user did not get do not stand in an op's place."""
from __future__ import annotations

from typing import List

from .catalogue import kind
from .swap import candidates, refusals


def reasons(original_json: str, op: str, asked: str) -> List[str]:
    """Lines about the variants of an op that the symbol's plan was not offered.

    ``asked``: "exact" or "all".
    """
    fitting = candidates(original_json).get(op, [])
    inexact = [name for name in fitting if not kind(name).exact]
    if inexact and asked != "all":
        return ["with variants all it could run as %s" % " or ".join(inexact)]
    if fitting:  # left out for what is to be kept or recomputed, which the request says
        return []
    refused = [reason.split(", not ")[0]
               for reason in refusals(original_json).get(op, {}).values()]
    # Each kind of activation is a reason against the variants of all others.
    others = [reason for reason in refused if not reason.startswith("the activation is ")]
    names = dict.fromkeys(others or refused)
    return ["no variant fits: " + "; ".join(names)] if names else []
