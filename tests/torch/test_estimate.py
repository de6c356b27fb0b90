"""What an estimate says of a module, beside what plain PyTorch takes for its step."""
from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda import _memory_viz
from torch.utils.checkpoint import checkpoint
from torch_nets import Attention, Convolutions, images, sentences

import memonger.torch as mt
from memonger.errors import InputError
from memonger.plans.plan_file import load_plan
from memonger.torch.pytorch.allocations import peak_bytes


class Branches(nn.Module):
    """Looks at values of its own, and at values of the inputs."""

    def __init__(self, looks=False):
        super().__init__()
        self.embedding, self.looks = nn.Embedding(50, 32), looks
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])

    def forward(self, tokens):
        x = self.embedding(tokens)
        if bool((torch.arange(5) == 3).any()):
            print("a message", end="")
        for number, layer in enumerate(self.layers):
            is_large = self.looks and float(x.detach().mean()) > 9
            x = torch.tanh(layer(x)) if is_large or number % 2 else layer(x).relu()
        return x[tokens > 20].square().mean()


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.first = reentrant, nn.Linear(32, 32)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(32, 96), nn.GELU(), nn.Dropout(0.2),
                                                   nn.Linear(96, 32)) for _ in range(3)])

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=self.reentrant)
        return x.square().mean()


class Recurrent(nn.Module):
    """Gradients of its steps are summed up."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(16, 48), nn.Linear(48, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 48)
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
        return F.cross_entropy(self.last(h), torch.zeros(len(x), dtype=torch.long))


NETS = {
    "convolutions": lambda: (Convolutions(), images()),
    "attention": lambda: (Attention(), sentences()),
    "branches": lambda: (Branches(), (torch.randint(0, 50, (16, 20)),)),
    "looks at values": lambda: (Branches(True), (torch.randint(0, 50, (16, 20)),)),
    "checkpoints": lambda: (Checkpointed(False), (torch.randn(512, 32),)),
    "reentrant checkpoints": lambda: (Checkpointed(True), (torch.randn(512, 32),)),
    "recurrent": lambda: (Recurrent(), (torch.randn(8, 12, 16),)),
    "lstm": lambda: (nn.LSTM(16, 24, 2, dropout=0.1), (torch.randn(10, 8, 16),)),
    "sparse gradients": lambda: (nn.Sequential(nn.Embedding(500, 16, sparse=True),
                                               nn.Linear(16, 4)), torch.randint(0, 9, (8, 12))),
    "depthwise": lambda: (nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.GELU(),
        nn.MaxPool2d(2), nn.ConvTranspose2d(16, 8, 2, stride=2)), torch.randn(4, 3, 24, 24)),
}


def close(estimate, taken_bytes):
    return abs(estimate.total_bytes / taken_bytes - 1) < 0.03


def bytes_of(estimate):
    return sum(m.peak_bytes for m in estimate.modules) + sum(
        estimate.fixed_bytes.get(name, 0) for name in ("inputs", "buckets"))


@pytest.mark.parametrize("name", NETS)
def test_an_estimate_is_what_plain_pytorch_takes(name, capsys):
    torch.manual_seed(0)
    module, inputs = NETS[name]()
    before = copy.deepcopy(module.state_dict())
    estimate = mt.estimate(module, inputs)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), module.state_dict().values()))
    assert all(p.grad is None for p in module.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert any("ran" in note for note in estimate.notes) == (name == "looks at values")
    assert close(estimate, mt.measure(module, inputs, 1).total_bytes)
    assert bytes_of(estimate) == estimate.total_bytes


@pytest.mark.parametrize("name", ["attention", "checkpoints", "recurrent", "lstm"])
def test_on_meta_it_is_the_same(name):
    module, inputs = NETS[name]()
    with_memory = mt.estimate(module, inputs)
    with torch.device("meta"):
        bare, _ = NETS[name]()
    on_meta = mt.estimate(bare, tuple(x.to("meta") for x in inputs))
    assert on_meta.total_bytes == with_memory.total_bytes
    assert on_meta.modules == with_memory.modules


def test_values_that_are_not_there_are_named():
    with torch.device("meta"):
        module = Branches(True)
    with pytest.raises(InputError, match="cannot run without values"):
        mt.estimate(module, torch.zeros(4, 4, dtype=torch.long, device="meta"))


def test_a_module_that_fails_is_told_in_its_own_words():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 3))
    with pytest.raises(InputError, match="the module fails: .*2x4 and 3x3"):
        mt.estimate(module, torch.ones(2, 4))


def test_what_is_told_of_any_plan_is_told_of_an_estimate():
    module, x = NETS["convolutions"]()
    assert any("eval mode" in note for note in mt.estimate(module.eval(), x).notes)
    with pytest.raises(InputError, match="nothing to train"):
        mt.estimate(nn.Sequential(nn.Linear(4, 4)).requires_grad_(False), torch.ones(2, 4))


def test_gradients_of_steps_before_count_and_are_added_to():
    module, x = NETS["attention"]()
    module(*x).backward()
    held_bytes = sum(p.grad.nbytes for p in module.parameters())
    estimate = mt.estimate(module, x)
    peak = peak_bytes(lambda: module(*x).backward(), torch.device("cpu"))
    assert estimate.fixed_bytes["gradients"] == held_bytes
    assert estimate.pool_bytes == peak
    assert sum(m.gradient_bytes for m in estimate.modules) == held_bytes
    assert bytes_of(estimate) == estimate.total_bytes


def test_copies_of_autocast_count():
    module, x = NETS["attention"]()

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = module(*x)
        loss.backward()
        return loss
    with torch.autocast("cpu", torch.bfloat16):
        estimate = mt.estimate(module, x)
    step()
    module.zero_grad()
    assert estimate.pool_bytes == peak_bytes(step, torch.device("cpu"))
    assert estimate.pool_bytes != mt.estimate(module, x).pool_bytes


def test_buckets_of_distributed_training_count():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module, x = NETS["attention"]()
        plain = mt.estimate(module, x)
        before = module.embedding.weight.nbytes
        estimate = mt.estimate(nn.parallel.DistributedDataParallel(module), x)
        trained = sum(p.nbytes for p in module.parameters())
        assert before and estimate.fixed_bytes["buckets"] == trained
        assert estimate.total_bytes == plain.total_bytes + trained
        assert "buckets" in str(estimate)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("optimizer", [None, "sgd", "adam"])
def test_the_table_says_who_takes_what_and_when(optimizer):
    module, x = NETS["attention"]()
    estimate = mt.estimate(module, x, optimizer=optimizer)
    of = {m.path: m for m in estimate.modules}
    wide = of["layers.1.4"]
    assert wide.parameter_bytes == wide.gradient_bytes == sum(
        p.nbytes for p in module.layers[1][4].parameters())
    assert wide.optimizer_bytes == (2 * wide.parameter_bytes + 8 if optimizer == "adam" else 0)
    assert wide.kept_bytes == 8 * 12 * 64 * 4  # what GELU reads
    assert sum(m.optimizer_bytes for m in of.values()) == estimate.fixed_bytes.get("optimizer", 0)
    assert estimate.total_bytes == estimate.pool_bytes + sum(estimate.fixed_bytes.values())
    text = str(estimate)
    assert "backward of" in estimate.moment and estimate.moment in text
    rows = {line.split()[0]: line for line in text.splitlines() if line}
    assert "parameters" in rows["module"] and "100.0 %" in rows["sum"]
    assert "layers.1" in text and ("optimizer" in rows["module"]) == (optimizer == "adam")


def test_a_step_of_the_optimizer_may_be_the_moment():
    module = nn.Sequential(*[nn.Linear(200, 200) for _ in range(4)])
    estimate = mt.estimate(module, torch.randn(2, 200), optimizer="adam")
    assert estimate.moment == "the optimizer's step"
    optimizer = torch.optim.Adam(module.parameters())
    for _ in range(2):
        module(torch.randn(2, 200)).sum().backward()
        optimizer.step()
    whole = estimate.fixed_bytes["parameters"] + estimate.fixed_bytes["optimizer"] + sum(
        m.gradient_bytes for m in estimate.modules)
    assert close(estimate, whole + peak_bytes(optimizer.step, torch.device("cpu")))


def test_a_large_network_is_shown_in_a_screen():
    module = nn.Sequential(*[nn.Sequential(*[nn.Linear(8, 8) for _ in range(40)])
                             for _ in range(12)])
    lines = str(mt.estimate(module, torch.randn(4, 8))).splitlines()
    assert len(lines) < 45 and any(line.startswith("11 ") for line in lines)


def test_an_estimate_is_a_plan(tmp_path):
    module, x = NETS["convolutions"]()
    estimate = mt.estimate(module, x)
    assert max(estimate.timeline().live_bytes) == estimate.pool_bytes
    estimate.report(str(tmp_path / "page.html"))
    estimate.save(str(tmp_path / "plan.json"))
    assert load_plan(str(tmp_path / "plan.json")).total_bytes == estimate.total_bytes
    with pytest.raises(InputError, match="make one with"):
        mt.compile(module, plan=estimate)


def events(snapshot):
    """Live bytes after each event, by address."""
    live, line = {}, []
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            assert all(event["addr"] >= a + s or event["addr"] + event["size"] <= a
                       for a, s in live.items()), "two values in one place"
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"]
        line.append(sum(live.values()))
    return line, live


@pytest.mark.parametrize("planned", [False, True])
def test_pytorchs_viewer_reads_a_snapshot(planned):
    module, x = NETS["attention"]()
    plan = mt.plan(module, x, "80%", "eager", time_limit=2) if planned else \
        mt.estimate(module, x, optimizer="adam")
    snapshot = pickle.loads(pickle.dumps(mt.memory_snapshot(plan)))
    line, left = events(snapshot)
    assert max(line) == plan.total_bytes
    segment, = snapshot["segments"]
    assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"] >= plan.total_bytes
    assert {b["address"] for b in segment["blocks"] if b["state"] == "active_allocated"} == \
        set(left)
    assert "total_allocated" in _memory_viz.segsum(snapshot)
    assert "free completed" in _memory_viz.trace(snapshot)
    assert "layers.1.4" in _memory_viz.memory(snapshot, lambda lines: "".join(lines)) or planned
    assert "snapshot.pickle" in _memory_viz.trace_plot(snapshot)
    frames = {(f["filename"], f["name"]) for e in snapshot["device_traces"][0]
              for f in e["frames"]}
    assert any(path == "layers.1.4" and "addmm" in name for path, name in frames)


def test_the_command_line_prints_the_table(tmp_path, monkeypatch, capsys):
    from memonger.cli import main
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch.nn as nn\n\ndef build():\n    return nn.Sequential(*[nn.Sequential("
        "nn.Linear(32, 32), nn.GELU()) for _ in range(3)])\n")
    asked = ["estimate", "net.py:build", "--input", "64,32", "--optimizer", "adam"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "its worst moment: " in text and "share" in text and "\n2.0 " in text
    assert main([*asked, "--budget", "1KB"]) == 3
