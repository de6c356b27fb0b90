"""examples/imagenet.py trains on synthetic pictures and record files, on one and two devices."""
from __future__ import annotations

import csv
import importlib.util
import io
import os
from pathlib import Path

import numpy as np
import pytest
from needed import needs_plugin

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "imagenet.py"
PLANNED = ["--network", "mobilenet", "--image", "64", "--batch", "8", "--batches", "3",
           "--budget", "80%"]
SMALL = ["--network", "resnet18", "--image", "32", "--batch", "4", "--batches", "3"]


@pytest.fixture(scope="module")
def example():
    found = importlib.util.spec_from_file_location("imagenet_example", SCRIPT)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def last_losses(printed: str):
    words = printed.strip().splitlines()[-1].replace(",", "").split()
    return float(words[1]), float(words[6])


def write_records(path: Path, count: int) -> None:
    import mxnet as mx
    from PIL import Image
    random = np.random.RandomState(0)
    writer = mx.recordio.MXRecordIO(str(path), "w")
    for index in range(count):
        buffer = io.BytesIO()
        shade = 60 + 120 * (index % 2)
        picture = shade + random.randint(0, 40, (48, 40, 3))
        Image.fromarray(picture.astype(np.uint8)).save(buffer, "JPEG")
        writer.write(mx.recordio.pack(mx.recordio.IRHeader(0, float(index % 2), index, 0),
                                      buffer.getvalue()))
    writer.close()


def test_checkpoints_continue_where_training_stopped(example, tmp_path, capsys):
    prefix = str(tmp_path / "folder" / "net")
    assert example.main(SMALL + ["--epochs", "2", "--checkpoint", prefix]) == 0
    first, last = last_losses(capsys.readouterr().out)
    assert last < first
    assert example.main(SMALL + ["--epochs", "3", "--checkpoint", prefix, "--resume", "2"]) == 0
    resumed, _ = last_losses(capsys.readouterr().out)
    assert resumed < first
    assert os.path.exists(prefix + "-0003.params") and os.path.exists(prefix + "-symbol.json")


def test_two_devices_share_a_batch(example, capsys):
    assert example.main(SMALL + ["--devices", "cpu0,cpu1"]) == 0
    assert np.isfinite(last_losses(capsys.readouterr().out)).all()
    with pytest.raises(SystemExit, match="split over 2 devices"):
        example.main(["--network", "resnet18", "--batch", "3", "--devices", "cpu0,cpu1"])


@pytest.mark.parametrize("words, message", [
    (["--records", "none.rec"], "there is no file none.rec"),
    (["--checkpoint", "none", "--resume", "2"], "there is no file none-symbol.json"),
    (["--devices", "tpu0"], "cannot read the devices 'tpu0'"),
    (["--validation", "val.rec"], "--validation needs --records"),
    (["--epochs", "0"], "there is nothing to train"),
    (["--batches", "0"], "there is nothing to train")])
def test_what_cannot_be_is_told_before_anything_runs(example, words, message, capsys):
    with pytest.raises(SystemExit) as caught:
        example.main(SMALL + words)
    assert caught.value.code == 2 and message in capsys.readouterr().err


def test_errors_of_mxnet_are_one_line(example, tmp_path, capsys):
    (tmp_path / "damaged.rec").write_bytes(b"no pictures")
    assert example.main(SMALL + ["--records", str(tmp_path / "damaged.rec")]) == 1
    assert capsys.readouterr().err.startswith("error: MXNet: ")


def test_record_files_are_read(example, tmp_path, capsys):
    for name in ("train.rec", "val.rec"):
        write_records(tmp_path / name, 8)
    assert example.main(SMALL + ["--records", str(tmp_path / "train.rec"),
                                 "--validation", str(tmp_path / "val.rec")]) == 0
    assert np.isfinite(last_losses(capsys.readouterr().out)).all()


@needs_plugin
def test_a_planned_network_loses_as_the_original_does(example, tmp_path, capsys):
    prefix = str(tmp_path / "folder" / "loss")
    assert example.main(PLANNED + ["--compare-loss", prefix,
                                 "--save-plan", str(tmp_path / "plan.json")]) == 0
    printed = capsys.readouterr().out
    assert "largest difference" in printed
    with open(prefix + ".csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    for row in rows:
        assert float(row["original"]) == pytest.approx(float(row["planned"]), rel=1e-3)
    assert (tmp_path / "plan.json").stat().st_size > 1000


@needs_plugin
def test_differences_are_checked(example, capsys):
    assert example.main(PLANNED + ["--check-diff"]) == 0
    assert "Same network" in capsys.readouterr().out


@needs_plugin
@pytest.mark.slow
def test_run_times_are_measured(example, capsys):
    assert example.main(PLANNED + ["--check-runtime"]) == 0
    assert "of each, in turn" in capsys.readouterr().out


@needs_plugin
def test_an_impossible_budget_ends_with_code_3(example, capsys):
    assert example.main(SMALL + ["--budget", "1%"]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_networks_that_do_not_classify_pictures_are_refused(example):
    with pytest.raises(SystemExit, match="does not classify pictures"):
        example.main(["--network", "unet", "--batch", "1"])


def test_comparisons_need_a_budget(example, capsys):
    with pytest.raises(SystemExit):
        example.main(SMALL + ["--check-diff"])
    assert "nothing to compare without --budget" in capsys.readouterr().err


def test_the_synthetic_pictures_are_the_same_each_time(example):
    first, second = (example.SyntheticPictures(2, (3, 8, 8), 5, 2) for _ in range(2))
    for one, other in zip(first, second):
        assert (one.data[0].asnumpy() == other.data[0].asnumpy()).all()
        assert (one.label[0].asnumpy() == other.label[0].asnumpy()).all()
