"""native.capture: what MXNet's memory planner was given and decided, for each bind in the block."""
from __future__ import annotations

import threading

import mxnet as mx
import numpy as np
import pytest

from memonger.mx.capture.binding import bind_delayed, infer_arguments
from memonger.mx.plugin import loading as native

from .graphs import CONVOLUTIONS, PERCEPTRON, captured, clones, convolutions, mark, perceptron


def bind(symbol, shapes, **options):
    return bind_delayed(symbol, infer_arguments(symbol, shapes), **options)


def test_nothing_is_recorded_outside_and_nothing_is_seen_inside() -> None:
    bind(perceptron(), PERCEPTRON)
    with native.capture() as records:
        bind(perceptron(), PERCEPTRON)
        assert records == []
    assert len(records) == 1
    bind(perceptron(), PERCEPTRON)
    assert len(records) == 1


def test_captures_nest_and_have_a_record_for_each_bind_in_order() -> None:
    """Once a capture inside another ended both, and what the outer one had was lost."""
    with native.capture() as outer:
        bind(perceptron(), PERCEPTRON)
        with native.capture() as inner:
            bind(convolutions(), CONVOLUTIONS)
        with native.capture() as empty:
            pass
        bind(perceptron(), {"data": (8, 6)})
    assert len(inner) == 1 and empty == []
    assert [len(r["nodes"]) for r in outer] == [
        len(captured(perceptron(), PERCEPTRON)["nodes"]), len(inner[0]["nodes"]),
        len(captured(perceptron(), PERCEPTRON)["nodes"])]
    assert outer[1] == inner[0]


def test_the_record_is_what_mxnet_says() -> None:
    symbol = convolutions()
    arguments = infer_arguments(symbol, CONVOLUTIONS)
    with native.capture() as records:
        executor = bind_delayed(symbol, arguments)
    record, text = records[0], executor.debug_str()
    assert record["part"] == "executor" and record["references"] == []
    assert record["replayed"] is True
    megabytes = int(text.split("Total ")[1].split(" MB")[0])
    assert record["storage_allocated_bytes"] >> 20 == megabytes
    names = [line.split("Name=")[1] for line in text.splitlines() if "Name=" in line]
    assert [n["name"] for n in record["nodes"] if n["op"] != "null"] == names
    count = sum(node["num_outputs"] for node in record["nodes"])
    for key in ("shape", "dtype", "storage_id", "inplace_index"):
        assert len(record["entries"][key]) == count
    for index, node in enumerate(record["nodes"]):
        assert all(0 <= source < index for source, _ in node["inputs"])


def test_the_pool_is_the_largest_value_of_each_storage_id() -> None:
    record = captured(convolutions(), CONVOLUTIONS)
    largest = {}
    entries = record["entries"]
    for number, shape, dtype in zip(entries["storage_id"], entries["shape"], entries["dtype"]):
        if number >= 0:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            largest[number] = max(largest.get(number, 0), size)
    assert record["pool_bytes"] == sum(-(-size // 4) * 4 for size in largest.values())


def test_names_with_anything_in_them_survive() -> None:
    name = 'a "quoted" \\ name\twith\ncontrols and üñí'
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name=name)
    record = captured(mx.sym.MakeLoss(x, name="loss"), {"data": (2, 3)})
    assert name in [node["name"] for node in record["nodes"]]


def test_an_error_in_the_block_ends_the_recording_and_a_bind_that_fails_leaves_no_record() -> None:
    arguments = infer_arguments(perceptron(), PERCEPTRON)
    wrong = arguments._replace(shapes=((4, 7),) + arguments.shapes[1:])
    with pytest.raises(Exception, match="bind|shape"), native.capture() as records:
        bind(perceptron(), PERCEPTRON)
        bind_delayed(perceptron(), wrong)
    assert len(records) == 1
    with native.capture() as later:
        bind(perceptron(), PERCEPTRON)
    assert len(later) == 1


def test_other_threads_are_not_recorded() -> None:
    done = []

    def elsewhere():
        bind(perceptron(), PERCEPTRON)
        done.append(True)
    with native.capture() as records:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert done and records == []


def test_it_works_while_the_plugin_is_off() -> None:
    marked = mark(perceptron(), {"act1": "1"})
    native.disable()
    try:
        record = captured(marked, PERCEPTRON)
    finally:
        native.enable()
    assert not clones(record) and record["pool_bytes"] > 0
    assert clones(captured(marked, PERCEPTRON))
