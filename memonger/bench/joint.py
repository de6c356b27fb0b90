"""MONeT's joint instances: the format, and a naive check of plans against MONeT's own model.

MONeT (Shah et al., "Memory optimization for deep networks", ICLR 2021) chooses together what is
recomputed, how each operator keeps what its gradient needs, the algorithm of each convolution and
what runs in place. An instance is a text of integers: ``N V T choose_algorithms in_place``, then
for each of N nodes (the first V are forward nodes, the last of them the loss) ``size local fixed
is_mask convolution in_place_of`` and vectors, each with its length first: time, time when
recomputed, time in place, workspace of the three, local tensors, masks; then the number of
variants, and for each the values that it needs and its forward dependencies. Sizes in KB, times
in units of 0.01 ms.

:func:`check` shares no code with the search: it goes through MONeT's constraints one by one, for
every stage and every node, and adds the objective up again.
"""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterator, List, Tuple

from ..errors import InputError, InvalidPlan


@dataclass(frozen=True)
class JointNode:
    """One node of an instance; sizes in KB, times in 0.01 ms."""

    size: int
    local: int
    fixed: int
    is_mask: bool
    is_convolution: bool
    #: The value that the node may overwrite; -1: none.
    in_place_of: int
    #: By algorithm, or by variant; negative: not available.
    time: Tuple[int, ...]
    time_again: Tuple[int, ...]
    time_in_place: Tuple[int, ...]
    workspace: Tuple[int, ...]
    workspace_again: Tuple[int, ...]
    workspace_in_place: Tuple[int, ...]
    local_tensors: FrozenSet[int]
    #: Extra outputs, nodes of their own, that run only together with this one.
    masks: Tuple[int, ...]
    #: For each variant what it needs, and what it does not count beside that.
    needs: Tuple[FrozenSet[int], ...]
    released: Tuple[FrozenSet[int], ...]


@dataclass(frozen=True)
class JointInstance:
    """One network at one batch size, with all choices."""

    name: str
    num_forward: int
    choose_algorithms: bool
    in_place: bool
    nodes: Tuple[JointNode, ...]

    @property
    def num_stages(self) -> int:
        """Stage 0 runs the forward nodes, each later one a backward node."""
        return len(self.nodes) - self.num_forward + 1

    def backward(self, stage: int) -> JointNode:
        """The node at the end of a stage; the loss in stage 0."""
        return self.nodes[self.num_forward + stage - 1]


@dataclass(frozen=True)
class JointPlan:
    """What happens in each stage, in the terms of MONeT's program."""

    #: S: the values held when the stage begins; one more than stages.
    held: Tuple[FrozenSet[int], ...]
    #: M: the variant of the backward node.
    variants: Tuple[int, ...]
    #: R: the forward nodes that run.
    runs: Tuple[FrozenSet[int], ...]
    #: RF: the algorithm of each convolution that runs, the backward node included.
    algorithms: Tuple[Dict[int, int], ...]
    #: IP: what runs in place.
    in_place: Tuple[FrozenSet[int], ...]


def read_instance(path: str) -> JointInstance:
    """Read an instance from a file.

    Raises
    ------
    InputError
        If the file cannot be read or contradicts itself.
    """
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the instance %s: %s" % (path, error)) from error
    try:
        return parse_instance(text, os.path.splitext(os.path.basename(path))[0])
    except InputError as error:
        raise InputError("%s: %s" % (path, error)) from error


def parse_instance(text: str, name: str = "") -> JointInstance:
    """As :func:`read_instance`, from the text of the file."""
    try:
        numbers = iter([int(word) for word in text.split()])
    except ValueError as error:
        raise InputError("an instance consists of integers: %s" % error) from error
    count, num_forward, stages, choose, in_place = (_next(numbers) for _ in range(5))
    if not 2 <= num_forward <= count or stages != count - num_forward + 1:
        raise InputError("the numbers of nodes in the first line contradict each other")
    nodes = tuple(_node(numbers) for _ in range(count))
    if next(numbers, None) is not None:
        raise InputError("the instance has more numbers than its first line says")
    for number, node in enumerate(nodes):
        for referred in (node.local_tensors, node.masks, *node.needs, *node.released):
            if any(not 0 <= other < count for other in referred):
                raise InputError("node %d refers to a node that does not exist" % number)
    return JointInstance(name, num_forward, bool(choose), bool(in_place), nodes)


def _node(numbers: Iterator[int]) -> JointNode:
    size, local, fixed, is_mask, convolution, in_place_of = (_next(numbers) for _ in range(6))
    vectors = [_vector(numbers) for _ in range(8)]
    variants = [(frozenset(_vector(numbers)), frozenset(_vector(numbers)))
                for _ in range(_next(numbers))]
    return JointNode(size, local, fixed, bool(is_mask), convolution >= 0, in_place_of, vectors[0],
                     vectors[1], vectors[2], vectors[3], vectors[4], vectors[5],
                     frozenset(vectors[6]), vectors[7],
                     tuple(needs for needs, _ in variants),
                     tuple(released for _, released in variants))


def _next(numbers: Iterator[int]) -> int:
    for number in numbers:
        return number
    raise InputError("the instance is cut short")


def _vector(numbers: Iterator[int]) -> Tuple[int, ...]:
    length = _next(numbers)
    if length < 0:
        raise InputError("a vector has a negative length")
    return tuple(_next(numbers) for _ in range(length))


def check(instance: JointInstance, plan: JointPlan, budget_kb: int) -> int:
    """Go through MONeT's constraints; the objective of the plan.

    Cost: stages times forward nodes squared; a second for the largest published instance.

    Raises
    ------
    InvalidPlan
        If a constraint is broken; the message says which one, where.
    """
    stages = range(instance.num_stages)
    lengths = {len(plan.held) - 1, len(plan.variants), len(plan.runs), len(plan.algorithms),
               len(plan.in_place)}
    _demand(lengths == {instance.num_stages}, "the plan has a different number of stages")
    _demand(not plan.held[0], "something is held before anything has run")
    for number, node in enumerate(instance.nodes[:instance.num_forward]):
        _demand(node.is_mask or number in plan.runs[0], "forward node %d does not run" % number)
    return sum(_check_logic(instance, plan, stage) + _check_memory(instance, plan, stage, budget_kb)
               for stage in stages)


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise InvalidPlan(problem)


def _check_logic(instance: JointInstance, plan: JointPlan, stage: int) -> int:
    # What may run, and the time of the forward nodes.
    held, after, runs = plan.held[stage], plan.held[stage + 1], plan.runs[stage]
    in_place, algorithms = plan.in_place[stage], plan.algorithms[stage]
    nodes, where, cost = instance.nodes, " in stage %d" % stage, 0
    _demand(all(0 <= v < instance.num_forward for v in held | after | runs | in_place),
            "a node that is not a forward node is held or runs again" + where)
    overwritten = set()
    for v in in_place:
        _demand(instance.in_place and v in runs and nodes[v].in_place_of >= 0,
                "node %d cannot run in place" % v + where)
        if not nodes[v].is_mask:
            overwritten.add(nodes[v].in_place_of)
    _demand(not overwritten & after, "a value that was overwritten is held" + where)
    present = runs - overwritten
    _demand(after <= held | present, "a value is held that is not there" + where)
    variant = plan.variants[stage]
    _demand(0 <= variant < len(instance.backward(stage).needs), "no such variant" + where)
    _demand(stage > 0 or variant == 0, "the loss has one variant")
    for v in instance.backward(stage).needs[variant] if stage > 0 else ():
        _demand(v >= instance.num_forward or v in present or v in after,
                "the backward node lacks value %d" % v + where)
    for v in runs:
        node = nodes[v]
        for needed in node.needs[0]:
            _demand(needed in runs or needed in held,
                    "node %d lacks value %d" % (v, needed) + where)
        for mask in node.masks:
            if nodes[v].in_place_of >= 0 and mask in runs:
                _demand((mask in in_place) == (v in in_place),
                        "a mask and its node differ in running in place" + where)
        if instance.choose_algorithms and node.is_convolution:
            cost += _time_of_algorithm(node, algorithms, v, where)
        else:
            cost += (node.time_again if stage > 0 else node.time)[0]
        if v in in_place:
            cost += node.time_in_place[0] - node.time[0]
    for v in range(instance.num_forward):
        for mask in nodes[v].masks:
            _demand(mask not in runs or v in runs, "a mask runs without its node" + where)
    return cost


def _time_of_algorithm(node: JointNode, algorithms: Dict[int, int], number: int,
                       where: str) -> int:
    chosen = algorithms.get(number, -1)
    _demand(0 <= chosen < len(node.time) and node.time[chosen] >= 0,
            "node %d has no such algorithm" % number + where)
    return node.time[chosen]


def _check_memory(instance: JointInstance, plan: JointPlan, stage: int, budget_kb: int) -> int:
    # MONeT's three families of memory constraints, and the time of the backward node.
    nodes, number = instance.nodes, instance.num_forward + stage - 1
    last, variant = instance.backward(stage), plan.variants[stage]
    held, after, runs = plan.held[stage], plan.held[stage + 1], plan.runs[stage]
    needs = {v for v in last.needs[variant] if v < instance.num_forward}

    def total(values: object) -> int:
        return sum(nodes[v].size for v in values)  # type: ignore[attr-defined]

    def demand_room(used_kb: int, what: str) -> None:
        _demand(used_kb <= budget_kb, "%s in stage %d takes %d KB, and the budget is %d KB"
                % (what, stage, used_kb, budget_kb))

    gradients = (last.local if stage > 0 else 0) + nodes[number - 1].fixed
    for j in range(instance.num_forward):
        node = nodes[j]
        # Read by the backward node, made before j, and not held afterwards.
        kept = total(v for v in needs - after if v < j)
        demand_room(gradients + kept + total(v for v in held if v >= j) +
                    total(v for v in after if v < j), "holding values before node %d" % j)
        used = gradients + kept
        used += total(v for v in held - node.local_tensors if v > j)
        used += total(v for v in after - node.local_tensors if v < j)
        if j in runs:
            used += node.size + node.local + _workspace(instance, plan, stage, j)
        demand_room(used, "node %d" % j)
    if stage == 0:
        return 0 if instance.choose_algorithms and last.is_convolution else last.time[0]
    if instance.choose_algorithms and last.is_convolution:
        cost = _time_of_algorithm(last, plan.algorithms[stage], number, " in stage %d" % stage)
        workspace = last.workspace[plan.algorithms[stage][number]]
    else:
        cost, workspace = last.time[variant], last.workspace[variant]
    demand_room(workspace + last.local + last.fixed + last.size + total(needs) +
                total(after - last.released[variant]), "the backward node")
    return cost


def _workspace(instance: JointInstance, plan: JointPlan, stage: int, number: int) -> int:
    node = instance.nodes[number]
    workspaces = node.workspace_again if stage > 0 else node.workspace
    if instance.choose_algorithms and node.is_convolution:
        return workspaces[plan.algorithms[stage][number]]
    if number in plan.in_place[stage]:
        return node.workspace_in_place[0]
    return workspaces[0]


def flatten(instance: JointInstance) -> List[int]:
    """The layout that ``JointModel::Parse`` in ``plugins/core/joint.cc`` reads."""
    limit = instance.num_forward
    integers = [len(instance.nodes), limit, instance.choose_algorithms, instance.in_place]
    for node in instance.nodes:
        integers += [node.size, node.local, node.fixed, node.is_mask, node.is_convolution,
                     node.in_place_of if node.in_place_of < limit else -1]
        for vector in (node.time, node.time_again, node.time_in_place, node.workspace,
                       node.workspace_again, node.workspace_in_place,
                       sorted(node.local_tensors), node.masks):
            integers += [len(vector), *vector]
        integers.append(len(node.needs))
        for needs, released in zip(node.needs, node.released):
            for values in (needs, released):
                inside = sorted(v for v in values if v < limit)
                integers += [len(inside), *inside]
    return [int(number) for number in integers]
