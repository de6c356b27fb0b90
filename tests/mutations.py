"""Files as nobody should write them: mutations of good ones, by a random generator."""
from __future__ import annotations

import copy
import json

#: What stands where something else was expected.
HOSTILE = (None, True, -1, 0, 1, 7, 2 ** 31, 2 ** 63, -2 ** 63, 10 ** 400, 1.5, 1e308, -0.0, "",
           "x", "null", "\0", "\ud800", "-1", "nan", "1e9", "(0,0)", "2147483648", "9" * 20,
           "data", [], {}, [[]], [0, 0, 0], [-1, 0, 0], [0, 5, 0], {"a": 1}, float("nan"),
           float("inf"))


def places(document, path=()):
    """Paths of everything in a document, the root left out."""
    items = document.items() if isinstance(document, dict) else \
        enumerate(document) if isinstance(document, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(random, document, paths=None):
    """A copy of a JSON document with one to four changes."""
    result = copy.deepcopy(document)
    paths = paths or list(places(document))
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change(random, result, random.choice(paths), random.choice(paths))
    return result


def _change(random, document, path, other):
    try:
        holder = _at(document, path[:-1])
        value = holder[path[-1]]
        kind = random.randrange(12)
        if kind == 0:
            del holder[path[-1]]
        elif kind == 1:
            holder[path[-1]] = copy.deepcopy(_at(document, other))
        elif kind == 2 and isinstance(holder, list):
            holder.insert(random.randint(0, len(holder)), copy.deepcopy(value))
        elif kind == 3 and isinstance(holder, list):
            holder.reverse()
        elif kind == 4 and isinstance(holder, dict):
            holder[random.choice(("x", "attrs", "subgraphs", "control_deps"))] = holder.pop(
                path[-1])
        elif kind in (8, 9, 10) and type(value) is int:
            holder[path[-1]] = value + random.choice((-2, -1, 1, 2, 100))
        elif kind == 7:
            for _ in range(random.choice((3, 70))):
                value = [value]
            holder[path[-1]] = value
        else:
            holder[path[-1]] = random.choice(HOSTILE)
    except (KeyError, IndexError, TypeError):
        pass  # an earlier change took the place away


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def mutated_text(random, text):
    """The text with a piece taken out, doubled or replaced."""
    first = random.randrange(len(text))
    last = min(len(text), first + random.choice((1, 1, 3, 20, 1000)))
    new = random.choice(("", text[first:last] * 2, "\0", "-", "9", "nan", " ", "\n", "[", "}", "é",
                         text[last:last + 5]))
    return text[:first] + new + text[last:]


def json_text(document):
    """As ``json.dumps``, however deep; NaN and half characters included."""
    try:
        return json.dumps(document)
    except RecursionError:
        return "[" * 5000
