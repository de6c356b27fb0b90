"""The calls beside plan and compile."""
from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_nets import Convolutions, images

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError, UnknownOpError, VerificationError
from memonger.plans.verification import Difference
from memonger.report import progress


def test_verify_compares_every_number_and_leaves_the_module_as_it_was():
    module, x = Convolutions(), images()
    before = [value.clone() for value in module.state_dict().values()]
    step = mt.compile(module, "70%", "eager")
    found = mt.verify(step, module, x, steps=2)
    assert found.ok and found.identical
    names = {d.tensor for d in found.differences}
    assert {"loss", "gradient of first.weight", "norm.running_mean"} <= names
    assert "identical, bit for bit" in str(found)
    assert all(torch.equal(a, b) for a, b in zip(before, module.state_dict().values()))
    found.check()


def test_verify_of_another_module_is_refused():
    module, x = Convolutions(), images()
    step = mt.compile(module, "90%", mode="eager")
    with pytest.raises(InputError, match="not the one that was compiled"):
        mt.verify(step, Convolutions(width=4), x)


def test_verify_finds_a_difference():
    module, x = Convolutions(), images()
    step = mt.compile(module, "70%", "eager")
    found = mt.verify(step, module, x)
    worse = mt.Verification((*found.differences[1:],
                             Difference(0, "loss", False, 0.5, 0.25, 0.5, 0.0)), 2, 0.0)
    assert not worse.ok
    with pytest.raises(VerificationError, match="step 0: loss differs by 0.5 .0.25 of its"):
        worse.check()


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_ops_are_kept_and_recomputed_as_asked(mode):
    module, x = Convolutions(), images()
    plan = mt.plan(module, x, "88%", mode, time_limit=2)
    again = [name for name, decision in plan.decisions.items() if decision == "recompute"]
    assert again and "packing" not in str(plan) and " x 16x3x16x16" in str(plan).splitlines()[0]
    kept = mt.plan(module, x, "95%", mode, time_limit=2, keep=again[:1])
    assert kept.decisions[again[0]] == "keep" and kept.options["keep"] == tuple(again[:1])
    asked = mt.plan(module, x, "100%", mode, time_limit=2, recompute=again[:1])
    assert asked.decisions[again[0]] == "recompute"
    if mode == "eager":  # what Inductor makes of a budget this tight may take more
        assert mt.verify(mt.compile(module, plan=kept), module, x, steps=1).identical
    with pytest.raises(UnknownOpError, match="keep='nosuch' names no op"):
        mt.plan(module, x, "80%", mode, keep=["nosuch"])


def test_inputs_without_a_name_are_numbered():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU())
    assert " input1 5x3" in str(mt.plan(module, (torch.ones(5, 3),), "100%", "eager"))


def test_other_methods_and_a_limit_for_the_time():
    module, x = Convolutions(), images()
    chen = mt.plan(module, x, mode="eager", method="chen")
    least = mt.plan(module, x, mode="eager", overhead="10%", time_limit=2)
    assert chen.method == "chen" and chen.total_bytes < chen.baseline_total_bytes
    assert least.overhead <= 0.1 and least.total_bytes < least.baseline_total_bytes
    with pytest.raises(InputError, match="a budget or an overhead, not both"):
        mt.plan(module, x, "50%", mode="eager", overhead="2%")


def test_a_sweep_goes_from_cheap_to_dear():
    plans = mt.sweep(Convolutions(), images(), ("90%", "70%", "5%"), "eager", time_limit=2)
    assert [plan.overhead for plan in plans] == sorted(plan.overhead for plan in plans)
    assert len(plans) == 2 and plans[0].budget_bytes > plans[1].budget_bytes


def test_a_sweep_takes_what_a_plan_takes():
    module, x = Convolutions(), images()
    assert not mt.sweep(module, x, ("60%",), "eager", keep=["*"])
    [plan] = mt.sweep(module, x, ("95%",), "eager", method="chen", optimizer="adam", name="net")
    assert plan.method == "chen" and plan.graph.name == "net" and plan.fixed_bytes["optimizer"]


def test_the_largest_batch_planned_is_larger_and_no_more_fits():
    module, x = Convolutions(), images()
    budget = mt.estimate(module, x, "eager").total_bytes
    found = mt.max_batch(module, x, budget, "eager", time_limit=1, limit=64)
    assert found.unplanned == len(x[0]) < found.planned
    assert found.plan.total_bytes <= budget
    with pytest.raises(InputError, match="in bytes"):
        mt.max_batch(module, x, "50%")


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_call_that_makes_no_code_refuses_what_no_plan_fits(mode):
    """Under Inductor the smallest plan came back, up to 1.5 times the budget, as if it fitted."""
    module, x = Convolutions(), images()
    least = mt.plan(module, x, mode=mode, overhead=2.9, costs="reference", time_limit=2)
    with pytest.raises(InfeasibleBudget) as refused:
        mt.plan(module, x, int(0.7 * least.total_bytes), mode, costs="reference", time_limit=2)
    assert refused.value.minimum_bytes > refused.value.budget_bytes


def test_a_refused_call_has_no_frames_of_pytorchs_compiler(caplog):
    caplog.set_level("DEBUG", "memonger.torch")
    with pytest.raises(InfeasibleBudget) as refused:
        mt.compile(Convolutions(), "20%", "eager", costs="reference", time_limit=2)(*images())
    assert len(refused.traceback) < 6
    assert not any("_dynamo" in str(entry.path) for entry in refused.traceback)
    assert any(record.exc_info for record in caplog.records)


def test_a_refusal_says_where_nothing_takes_less():
    module = torch.nn.Sequential(torch.nn.Linear(8, 8))
    with pytest.raises(InfeasibleBudget, match="That is the network without a plan") as refused:
        mt.plan(module, torch.zeros(2, 8), "10%", "eager", costs="reference")
    assert refused.value.minimum_bytes == mt.plan(
        module, torch.zeros(2, 8), "100%", "eager", costs="reference").unplanned.total_bytes


def test_what_was_profiled_is_used_where_all_of_a_step_is_known(tmp_path):
    module, x = Convolutions(), images()
    estimated = mt.plan(module, x, "80%", "eager", time_limit=2)
    profile = mt.profile(module, x, "eager")
    stored = mt.plan(module, x, "80%", "eager", time_limit=2)
    given = mt.plan(module, x, "80%", "eager", costs=profile, time_limit=2)
    assert stored.costs == given.costs == "profile: cpu" != estimated.costs
    assert stored.graph == given.graph and stored.schedule == given.schedule
    other = mt.plan(module, images(8), "80%", "eager", time_limit=2)
    assert other.costs == estimated.costs
    file, = (tmp_path / "cache" / "torch-profiles").iterdir()
    mt.profile(module, images(8), "eager")
    assert mt.plan(module, x, "80%", "eager", time_limit=2).costs == "profile: cpu"
    for damaged in ("{", "[]", '{"device": "cpu", "times_s": {"a": "b"}, "temporary_bytes": {}}'):
        file.write_text(damaged)
        assert mt.estimate(module, x, "eager").costs == estimated.costs


def test_optimizer_state_is_part_of_the_total():
    module, x = Convolutions(), images()
    state = sum(2 * p.numel() * 4 + 4 for p in module.parameters())
    plain, adam = (mt.plan(module, x, "90%", "eager", optimizer=name) for name in (None, "adam"))
    assert adam.fixed_bytes["optimizer"] == state
    assert adam.baseline_total_bytes == plain.baseline_total_bytes + state


def test_auto_is_for_a_gpu():
    with pytest.raises(InputError, match="has free"):
        mt.plan(Convolutions(), images(), "auto")


def test_options_plan_in_torch_compile():
    module, x = Convolutions(), images()
    twin = Convolutions()
    twin.load_state_dict(module.state_dict())
    step = torch.compile(module, options=mt.options("90%"))
    torch.manual_seed(0)
    step(*x).backward()
    torch.manual_seed(0)
    mt.compile(twin)(*x).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(module.parameters(), twin.parameters()))


def test_a_compilation_tells_its_progress(capsys, monkeypatch):
    module, x = Convolutions(), images()
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    mt.compile(module, "80%", "eager", progress=True)(*x)
    shown = capsys.readouterr().err
    assert all(phase in shown for phase in ("tracing", "searching", "compiling"))
    seen = []
    mt.compile(module, "80%", "eager", progress=seen.append)(*x)
    assert seen and not capsys.readouterr().err


def test_a_plan_has_the_views_of_every_plan(tmp_path):
    plan = mt.plan(Convolutions(), images(), "65%", "eager", name="tiny")
    again = plan.graph.ops[plan.schedule.recomputed()[0]]
    assert again.name in plan.explain(again.name)
    assert again.name in plan.to_graphviz().source
    assert max(plan.timeline().live_bytes) == plan.pool_bytes
    plan.report(str(tmp_path / "plan.html"))
    assert "tiny" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_fsdp_is_refused_by_name():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        sharded = fully_shard(Convolutions(), mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(InputError, match="FSDP2"):
            mt.compile(sharded, "50%")
    finally:
        dist.destroy_process_group()


def test_ops_are_named_by_the_paths_of_their_modules():
    plan = mt.plan(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()),
                   torch.zeros(2, 4), "100%", "eager", costs="reference")
    ops = plan.graph.ops
    assert [op.name for op in ops if not op.is_backward] == ["0/addmm", "1/gelu"]
    assert {op.name.partition("/")[0] for op in ops if op.is_backward} == {"0", "1"}
    assert {t.name for t in plan.graph.tensors if t.category == "parameter"} == {
        "0.weight", "0.bias"}


def test_parameters_of_the_name_of_an_argument_keep_that_of_pytorch():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.x = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x):
            return torch.tanh(x * self.x) + self.shift

    plan = mt.plan(Scaled(), torch.zeros(2, 4), "100%", "eager", costs="reference")
    names = [t.name for t in plan.graph.tensors if t.producer < 0]
    assert {"x", "shift"} <= set(names) and len(set(names)) == len(names)


def test_an_estimate_prints_what_the_step_takes_by_category():
    estimated = mt.estimate(Convolutions(), images(), "eager")
    assert estimated.total_bytes == estimated.pool_bytes + sum(estimated.fixed_bytes.values())
    text = str(estimated)
    assert "fits" not in text and "with this plan" not in text and "not counted" in text
    assert text.splitlines()[1].startswith("in the step  ")
    assert "\nparameters  " in text and "\ntotal  " in text
    plan = str(mt.plan(Convolutions(), images(), "110%", "eager"))
    assert "without a profile" in plan and "workspace" not in plan, "it is said once"
    assert "with this plan" in plan and "pool" not in plan and "the rest" not in plan
    assert re.split("  +", plan.splitlines()[1].strip()) == [
        "total", "in the step", "before it", "step time"]


@pytest.mark.parametrize("inputs, shape", [((512, 64), "512, 64"), ([8, 3], "8, 3"),
                                           (((16, 3, 16, 16), (16,)), "16, 3, 16, 16")])
def test_shapes_in_place_of_tensors_are_told_apart(inputs, shape):
    for call in (lambda: mt.plan(Convolutions(), inputs, "70%"),
                 lambda: mt.estimate(Convolutions(), inputs)):
        with pytest.raises(InputError, match="sizes, not tensors") as refused:
            call()
        assert "torch.empty(%s, device=\"meta\")" % shape in str(refused.value)


def test_a_module_in_eval_mode_is_planned_with_a_note():
    module = Convolutions()
    noted = ["eval mode" in str(mt.plan(net, images(), "70%", "eager"))
             for net in (module, Convolutions().eval())]
    compiled = mt.compile(module, "8MB", "eager")
    for training in (False, True):
        compiled.train(training)(*images()).backward()
        noted.append(any("eval mode" in note for note in mt.plans(compiled)[-1].notes))
    assert noted == [False, True, True, False]


def test_calls_of_mxnet_point_to_those_of_pytorch():
    import memonger
    for call in (memonger.plan, memonger.estimate, memonger.max_batch, memonger.sweep,
                 memonger.measure, memonger.verify):
        with pytest.raises(InputError, match="PyTorch module"):
            call(Convolutions(), data=(16, 3, 16, 16),
                 **({"budget": "8GB"} if call is memonger.max_batch else {}))
    for call, name in ((memonger.plan, "budget"), (memonger.max_batch, "budget"),
                       (memonger.sweep, "budgets")):
        with pytest.raises(InputError, match=r"mt.plan\(module, inputs, budget=...\)"):
            call(Convolutions(), images(), **{name: "8GB"})


def test_a_class_is_refused_and_stays_as_it_is():
    call = torch.nn.Linear.__call__
    for planned in (lambda: mt.plan(torch.nn.Linear, images(), "70%"),
                    lambda: mt.compile(torch.nn.Linear, "70%")):
        with pytest.raises(InputError, match="class Linear"):
            planned()
    assert torch.nn.Linear.__call__ is call
    assert mt.measure(torch.nn.Linear(4, 4), torch.ones(2, 4), 1).peak_bytes > 0
