"""``python -m benchmarks smallest``."""
import json

from benchmarks.mxnet import smallest


def test_the_smallest_plan_is_between_the_proof_and_the_unplanned_total():
    rows = list(smallest.run(["attention_small"]))
    assert [row.variants for row in rows] == ["none", "all"]
    for row in rows:
        assert 0 < row.proven_bytes <= row.smallest_bytes < row.unplanned_bytes
    plain, variants = rows
    assert variants.smallest_bytes <= plain.smallest_bytes


def test_the_table_and_its_json_have_the_same_gap(capsys, monkeypatch):
    row = smallest.Row("net", 8, "none", 4 << 20, 3 << 20, 2 << 20, 0.25)
    assert "50.0 %" in smallest.render([row]) and "+25.0 %" in smallest.render([row])
    unproven = smallest.Row("net", 8, "none", 4 << 20, 3 << 20, 0, 0.25)
    assert unproven.gap is None and smallest.render([unproven]).endswith("0 B")
    monkeypatch.setattr(smallest, "run", lambda networks: iter([row]))
    smallest.main(["net"], as_json=True)
    found, = json.loads(capsys.readouterr().out)
    assert (found["network"], found["smallest_bytes"], found["gap"]) == ("net", 3 << 20, 0.5)
