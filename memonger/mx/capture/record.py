"""Symbol + shapes -> Graph, from MXNet's own passes.

The symbol is bound with arrays that take no memory while the plugin records what MXNet's memory
planner is given: every forward and backward op in execution order, shapes, dtypes, in-place
options, ignored inputs. Nothing about operators is guessed or tabled here.
"""
from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...graph.types import Graph, Inplace, Op, Tensor
from ...util.errors import InputError, PluginMissing
from ..plugin import fusion
from ..plugin import loading as native
from .binding import Arguments, GradReq, bind_delayed, infer_arguments

_LABEL_READERS = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput",
                  "MAERegressionOutput", "SVMOutput", "softmax_cross_entropy", "CTCLoss",
                  "MakeLoss")


@dataclass(frozen=True)
class Captured:
    """A bound training step."""

    graph: Graph
    #: Attributes of each op of ``graph.ops``.
    attributes: Tuple[Mapping[str, str], ...]
    arguments: Arguments
    #: Bytes outside the pool by category.
    fixed_bytes: Mapping[str, int]
    #: What MXNet really allocates for internal tensors: the pool as bound.
    pool_bytes: int
    #: What ``debug_str`` prints: 4 bytes an element, in bytes.
    printed_bytes: int
    #: Kinds of resource that each op asks for.
    resources: Tuple[Tuple[int, ...], ...] = ()
    #: Whether MXNet gives each op its arrays in the default layout, whatever MKLDNN made of them.
    default_layout: Tuple[bool, ...] = ()
    #: Where each tensor of ``graph`` is, "cpu(0)"; () for a network on one device.
    contexts: Tuple[str, ...] = ()
    #: Tensors that lie on other devices than the one whose memory counts; see
    #: :func:`memonger.mx.capture.devices.on_device`.
    elsewhere: FrozenSet[int] = frozenset()

    @property
    def added(self) -> FrozenSet[int]:
        """Gradients that are added to what lies in their arrays."""
        asked = [request for request in self.arguments.grad_reqs if request != "null"]
        return frozenset(tensor for tensor, request in zip(self.graph.outputs[-len(asked):], asked)
                         if request == "add")


def read(symbol: Any, shapes: Mapping[str, Sequence[int]],
         type_dict: Optional[Mapping[str, Any]] = None, grad_req: GradReq = "write",
         ctx: Any = None, group2ctx: Optional[Mapping[str, Any]] = None,
         as_run: bool = False) -> Captured:
    """Read the training step of a symbol.

    ``shapes``: shapes of inputs by name, as for ``infer_shape``.
    ``type_dict``, ``grad_req``, ``ctx``, ``group2ctx``: as for ``simple_bind``.
    ``as_run``: read the network with the fusion of point-wise ops that an executor would have.
    Raises ShapeError, InputError, BindError if MXNet cannot bind the network; the error names the
    input or op.
    Raises PluginMissing if the native plugin is not there.
    """
    if not native.available():
        raise PluginMissing("reading a network needs the native plugin, which is not there: %s"
                            % native.status())
    arguments = infer_arguments(symbol, shapes, type_dict, grad_req)
    with native.capture() as records, contextlib.nullcontext() if as_run else fusion.off():
        executor = bind_delayed(symbol, arguments, ctx, group2ctx)
    del executor
    return captured_from(records[-1], arguments, len(symbol.list_outputs()))


@dataclass(frozen=True)
class _Places:
    """Where the nodes of a record stand among ops and tensors."""

    #: Id of the first tensor of each node.
    first_tensor: Tuple[int, ...]
    #: Id of the op of each node that runs.
    op_of: Mapping[int, int]
    num_forward_nodes: int

    @classmethod
    def of(cls, record: Mapping[str, Any], num_outputs: int) -> _Places:
        nodes = record["nodes"]
        counts = [node["num_outputs"] for node in nodes]
        running = [index for index, node in enumerate(nodes) if node["op"] != "null"]
        return cls(tuple(accumulate(counts, initial=0))[:len(nodes)],
                   {index: op for op, index in enumerate(running)},
                   max(n for n, _ in record["outputs"][:num_outputs]) + 1)

    def tensors(self, pairs: Iterable[Sequence[int]]) -> Tuple[int, ...]:
        """Ids of tensors that are named by node and output."""
        return tuple(self.first_tensor[node] + output for node, output in pairs)


def captured_from(record: Mapping[str, Any], arguments: Arguments, num_outputs: int) -> Captured:
    """Translate one record of the plugin (see ``plugins/README.md``) to a graph."""
    nodes, entries = record["nodes"], record["entries"]
    owners = [(node["name"], node["op"]) for node in nodes for _ in range(node["num_outputs"])]
    refuse_unknown_shapes(owners, entries["shape"])
    places = _Places.of(record, num_outputs)
    tensors = _tensors(record, arguments, num_outputs, places)
    forward = nodes[:places.num_forward_nodes]
    refused = _refused(forward, nodes)
    names = _unique_names(forward)
    for index in places.op_of:
        # MKLDNN knows no float64: the first run passes its input on in place, a clone may not.
        if nodes[index]["op"] == "amp_cast" \
                and entries["dtype"][places.first_tensor[index]] == "float64":
            refused[index] = "MXNet with MKLDNN copies no float64 there"
    running = [nodes[index] for index in places.op_of]
    graph = Graph(
        tensors, tuple(_op(nodes[index], index, names.get(index), places, refused.get(index))
                       for index in places.op_of),
        places.tensors(record["outputs"]), pools="executor")
    contexts = [node["context"] for node in nodes if "context" in node
                for _ in range(node["num_outputs"])]
    return Captured(graph, tuple(node["attrs"] for node in running), arguments,
                    fixed_bytes(arguments, tensors), int(record["pool_bytes"]),
                    int(record["storage_allocated_bytes"]),
                    tuple(tuple(node.get("resources", ())) for node in running),
                    tuple(bool(node.get("default_layout")) for node in running), tuple(contexts))


def _tensors(record: Mapping[str, Any], arguments: Arguments, num_outputs: int,
             places: _Places) -> Tuple[Tensor, ...]:
    nodes, entries = record["nodes"], record["entries"]
    variables = _variable_categories(nodes, set(arguments.input_names), set(arguments.aux_names))
    heads = set(places.tensors(record["outputs"][:num_outputs]))
    gradients = set(places.tensors(record["outputs"][num_outputs:]))
    dtypes = {name: (np.dtype(name).name, np.dtype(name).itemsize)
              for name in set(entries["dtype"])}
    tensors: List[Tensor] = []
    for index, node in enumerate(nodes):
        for position in range(node["num_outputs"]):
            number = len(tensors)
            shape = tuple(entries["shape"][number])
            dtype_name, item_bytes = dtypes[entries["dtype"][number]]
            in_pool = entries["storage_id"][number] >= 0
            if node["op"] == "null":
                category = variables[index]
            elif number in gradients and not in_pool:
                category = "gradient"
            else:
                category = "output" if number in heads else "activation"
            name = node["name"] if node["num_outputs"] == 1 else "%s[%d]" % (node["name"], position)
            tensors.append(Tensor(
                name=name, size_bytes=math.prod(shape) * item_bytes,
                producer=places.op_of.get(index, -1), category=category,
                space="device" if in_pool else "outside", shape=shape, dtype=dtype_name))
    return tuple(tensors)


def _unique_names(forward: Sequence[Mapping[str, Any]]) -> Dict[int, str]:
    """A name of its own for each node that runs: MXNet allows two ops of one name."""
    names: Dict[int, str] = {}
    counts: Dict[str, int] = {}
    in_use = {node["name"] for node in forward if node["op"] != "null"}
    for index, node in enumerate(forward):
        if node["op"] == "null":
            continue
        name = node["name"]
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:  # attributes could not tell them apart
            while "%s~%d" % (name, counts[name]) in in_use:
                counts[name] += 1
            name = "%s~%d" % (name, counts[name])
        names[index] = name
    return names


def _op(node: Mapping[str, Any], index: int, name: Optional[str], places: _Places,
        refused: Optional[str]) -> Op:
    """The op of a node that runs.

    ``name``: that of a forward op; None in backward.
    ``refused``: why it must not run again, where the graph says so.
    """
    backward, hints = index >= places.num_forward_nodes, node["attrs"]
    first = places.first_tensor[index]
    return Op.of(
        name=node["name"] if name is None else name, kind=node["op"],
        inputs=places.tensors(node["inputs"]),
        outputs=tuple(range(first, first + node["num_outputs"])), is_backward=backward,
        forward_op=_forward_op(node, places) if backward else -1,
        control_deps=tuple(places.op_of[n] for n in node["control_deps"] if n in places.op_of),
        ignored_inputs=tuple(node.get("ignored_inputs", ())),
        inplace=tuple(Inplace(i, o, bool(same)) for i, o, same in node.get("inplace", ())),
        not_recomputable_because="it is a gradient" if backward else
        node.get("not_recomputable_because", "") if refused is None else refused,
        kept_outputs=tuple(node.get("kept_outputs", ())), device=node.get("device", 0),
        mirror_stage=hints.get("__mirror_stage__", ""),
        force_mirroring=_truth(hints.get("__force_mirroring__", "")),
        makes_state=bool(node.get("makes_state")),
        own_buffers=tuple(node.get("own_buffers", ())),
        adds_into_first=bool(node.get("adds_into_first")),
        unwritten_outputs=tuple(node.get("unwritten_outputs", ())),
        needs_reader=bool(node.get("needs_reader")))


def refuse_unknown_shapes(owners: Sequence[Tuple[str, str]], shapes: Sequence[Any]) -> None:
    """Raise InputError where MXNet allocates tensors while it runs, outside of any memory plan.

    ``owners``: name and operator of the node that makes each tensor.
    ``shapes``: None for a shape that is not known.
    """
    for (name, kind), shape in zip(owners, shapes):
        if shape is None:
            raise InputError(
                "the shape of %r (%s) is known only when it runs, as behind while_loop, cond and "
                "boolean_mask; MXNet plans no memory for such a network, so neither can memonger: "
                "plan the parts before and behind it" % (name, kind))


def _forward_op(node: Mapping[str, Any], places: _Places) -> int:
    """The op that a gradient node differentiates: it waits for it."""
    for dependency in node["control_deps"]:
        if dependency < places.num_forward_nodes:
            return places.op_of.get(dependency, -1)
    return -1


def _refused(forward: Sequence[Mapping[str, Any]],
             nodes: Sequence[Mapping[str, Any]]) -> Dict[int, str]:
    """Nodes that must not be recomputed, for reasons that only the whole graph shows."""
    count: Dict[str, int] = {}
    for node in forward:
        if node["op"] != "null":
            count[node["name"]] = count.get(node["name"], 0) + 1
    reasons = {index: "another op has the same name" for index, node in enumerate(forward)
               if count.get(node["name"], 0) > 1}
    for node in nodes:
        # MXNet copies what it finds after the gradients are made: a clone's value once more.
        if node["op"] == "_CrossDeviceCopy":
            reasons.update((source, "another device reads it") for source, _ in node["inputs"])
    # MXNet merges outputs that compute the same, but takes gradients of each: what it merged away
    # runs among the gradients, and reads first runs as all forward ops do.
    ran = {_what_it_does(node) for node in forward if node["op"] != "null"}
    for node in nodes[len(forward):]:
        if node["op"] != "null" and _what_it_does(node) in ran:
            reasons.update((source, "an output that MXNet merged with another reads it")
                           for source, _ in node["inputs"] if source < len(forward))
    return reasons


def _what_it_does(node: Mapping[str, Any]) -> Tuple[Any, ...]:
    return (node["op"], tuple(sorted(node["attrs"].items())),
            tuple((source, output) for source, output in node["inputs"]))


def _truth(text: str) -> str:
    if not text:
        return ""
    return "True" if text.lower() in ("true", "1") else "False"


def _variable_categories(nodes: Sequence[Mapping[str, Any]], inputs: Any,
                         aux: Any) -> Dict[int, str]:
    """Category of each variable node: by role, never by the look of its name."""
    labels = {node["inputs"][1][0] for node in nodes
              if node["op"] in _LABEL_READERS and len(node["inputs"]) > 1}
    result = {}
    for index, node in enumerate(nodes):
        if node["op"] != "null":
            continue
        if node["name"] in aux:
            result[index] = "aux"
        elif node["name"] in inputs or index in labels:
            result[index] = "input"
        elif node["name"].startswith("_head_grad_"):
            result[index] = "head_gradient"
        else:
            result[index] = "parameter"
    return result


def fixed_bytes(arguments: Arguments, tensors: Iterable[Tensor]) -> Dict[str, int]:
    """Bytes outside the pool by category: those of variables, and of gradients asked for."""
    plural = {"parameter": "parameters", "input": "inputs", "aux": "aux",
              "head_gradient": "head_gradients"}
    result = {"parameters": 0, "gradients": 0, "aux": 0, "inputs": 0, "head_gradients": 0}
    requests = dict(zip(arguments.names, arguments.grad_reqs))
    for tensor in tensors:
        if tensor.producer < 0:
            result[plural[tensor.category]] += tensor.size_bytes
            if requests.get(tensor.name, "null") != "null":
                result["gradients"] += tensor.size_bytes
    return result
