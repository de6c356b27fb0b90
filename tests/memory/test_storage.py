"""Whole storage plans: of variants, and of ops that became part of others."""
from __future__ import annotations

import random
from dataclasses import replace

import strategies

from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import expand_in_part
from memonger.memory.liveness import ProgramStep, build_program
from memonger.memory.storage import plan_program, plan_storage, pool_bytes


def test_a_variant_is_planned_like_the_graph_that_it_makes():
    used = 0
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.variants(rng, strategies.training_graph(rng, 8))
        schedule = strategies.schedule_with_variants(rng, graph)
        used += len(schedule.variants)
        in_use = graph_in_use(graph, schedule)
        for model in ("best", "stock", "live"):
            found = plan_storage(graph, schedule, model)
            same = plan_storage(in_use, replace(schedule, variants=()), model)
            assert (found.blocks, found.buffer_of) == (same.blocks, same.buffer_of)
    assert used > 50


def test_ops_that_became_part_of_others_change_no_arena():
    """MXNet counts steps without them; the order in which blocks are placed depends on lengths."""
    idle = ProgramStep(0, 0, (), (), (), (), 0, 0, False)
    for seed in range(40):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, 25)
        program = build_program(graph, expand_in_part(graph, strategies.decisions(rng, graph)))
        program = replace(program, bytes=tuple(1024 * b for b in program.bytes))
        steps, running = [], []
        for step in program.steps:
            steps += [idle] * rng.choice((0, 0, 1, 7))
            running.append(len(steps))
            steps.append(step)
        longer = replace(program, steps=tuple(steps))
        for model in ("arena", "best", "stock"):
            found = plan_program(longer, model)
            same = plan_program(program, model)
            assert (found.pool_bytes, found.offset_of) == (same.pool_bytes, same.offset_of)
            assert found.peak_live_bytes == same.peak_live_bytes
            assert found.step_of_peak == running[same.step_of_peak]
            assert [(b.start, b.end) for b in found.blocks.blocks] == [
                (running[b.start], [*running, len(steps)][b.end]) for b in same.blocks.blocks]


def test_a_remembered_pool_is_the_pool_of_its_schedule_and_model():
    rng = random.Random(3)
    graph = strategies.training_graph(rng, 25)
    schedules = [expand_in_part(graph, strategies.decisions(rng, graph)) for _ in range(30)]
    for schedule in [*schedules, *reversed(schedules), *map(replace, schedules)]:
        for model in ("best", "live"):
            assert pool_bytes(graph, schedule, model) == \
                plan_storage(graph, schedule, model).pool_bytes
    assert len({pool_bytes(graph, schedule) for schedule in schedules}) > 1
