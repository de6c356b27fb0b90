"""Graph and profile files with random damage: each is read, or refused in one line."""
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import json_text, mutated, mutated_text

from memonger.graph.imported import parse_graph
from memonger.mx.costs.profile_files import load_profile
from memonger.solve import Options, solve
from memonger.util.errors import InputError, MemongerError
from memonger.util.json_files import MAX_BYTES, parse_json, read_text

TEXT = "4 4\n10 1 1\n20 2 1\n5 3 0\n1 1 0\n0 1\n1 2\n0 2\n2 3\n"
LINKED = {"nodes": [{"id": 0, "name": "a", "cost_ram": 10, "cost_cpu": 1, "backward": False},
                    {"id": 1, "name": "b", "cost_ram": 20, "cost_cpu": 2, "backward": False},
                    {"id": 2, "name": "c", "cost_ram": 5, "cost_cpu": 3, "backward": True}],
          "links": [{"source": 0, "target": 1}, {"source": 0, "target": 2},
                    {"source": 1, "target": 2}]}
OWN = json.loads(json.dumps(parse_graph(TEXT).to_dict()))
PROFILE = {"kind": "memonger profile", "schema": 1, "facts": {"device": "d", "threads": 2},
           "fallback": "cpu", "times_s": {"a": 1e-3, "b": 2.0}}


def graph_file(text):
    """Reads a graph, and plans it if it can be read."""
    try:
        graph = parse_graph(text)
        solve(graph, None, "chen", Options(storage="live", objective="memory"))
    except MemongerError as error:
        assert "\n" not in str(error)


def profile_file(text, path):
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        load_profile(str(path))
    except InputError as error:
        assert "\n" not in str(error)


FORMS = pytest.mark.parametrize("document", [OWN, LINKED, PROFILE], ids=["own", "linked",
                                                                          "profile"])


@FORMS
@given(random=st.randoms(use_true_random=False))
def test_changed_documents(document, random, tmp_path_factory):
    look(json_text(mutated(random, document)), document, tmp_path_factory)


@pytest.mark.slow
@FORMS
@settings(max_examples=1500)
@given(random=st.randoms(use_true_random=False))
def test_thousands_of_changed_documents(document, random, tmp_path_factory):
    look(json_text(mutated(random, document)), document, tmp_path_factory)


@pytest.mark.slow
@settings(max_examples=1500)
@given(random=st.randoms(use_true_random=False))
def test_thousands_of_changed_texts(random, tmp_path_factory):
    document = random.choice([OWN, LINKED, PROFILE, None])
    text = TEXT if document is None else json.dumps(document)
    look(mutated_text(random, text), document, tmp_path_factory)


def look(text, document, tmp_path_factory):
    if document is PROFILE:
        profile_file(text, tmp_path_factory.getbasetemp() / "profile.json")
    else:
        graph_file(text)


def test_files_are_read_with_limits(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="larger than 256 MiB"):
        read_text("/dev/zero")
    assert MAX_BYTES == 2 ** 28
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="no text file"):
        read_text(str(tmp_path / "binary"))
    for name in ("none", "", "a\0b"):
        with pytest.raises(InputError, match="cannot read"):
            read_text(str(tmp_path / name))


@pytest.mark.parametrize("text, message", [
    ("[" * 65 + "]" * 65, "deeper than 64"), ("[" * 100000, "deeper"), ("{", "damaged"),
    ("[NaN]", "NaN is no number"), ("[-Infinity]", "no number"), ('"\\ud800"', "damaged"),
    ('"a', "damaged"), ("", "damaged")])
def test_json_is_refused_in_words(text, message):
    with pytest.raises(InputError, match=message):
        parse_json(text)


def test_brackets_in_texts_are_no_levels():
    assert parse_json('{"a": "%s\\"%s"}' % ("[" * 99, "{" * 99))["a"].count("[") == 99
    assert parse_json("[" * 64 + "]" * 64)
