"""Other implementations of ops that keep less for backward: the catalogue and the rewriting.

A variant replaces a chain of one or more ops by a single one. The new op takes the name of the
chain's last op, so the names of outputs stay, and it takes the chain's parameters as they are, so
checkpoints stay. What was replaced travels in an attribute of the new op, and :func:`unswap_json`
puts it back. Everything here works on the symbol's JSON; no framework is needed.

    >>> options = candidates(symbol.tojson())
    >>> options["relu0"]
    ['mask_relu']
    >>> swapped = swap_json(symbol.tojson(), {"relu0": "mask_relu"})
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from .errors import InputError, UnknownOpError

#: Attribute of a swapped-in op that holds what it stands for.
ORIGINAL = "__memonger_original__"

Attributes = Mapping[str, str]


@dataclass(frozen=True)
class VariantKind:
    """One way to run a chain of ops with less memory."""

    name: str
    #: Kinds of the ops it replaces, first to last; each entry may offer several.
    chain: Tuple[Tuple[str, ...], ...]
    #: The operator that takes their place.
    op: str
    #: True: bit for bit the same with MKLDNN off. False: within a stated tolerance.
    exact: bool
    #: What backward keeps besides parameters and per-channel vectors.
    keeps: str
    #: What MXNet's own op keeps.
    stock_keeps: str
    #: The counterpart in MONeT (ICLR 2021); "" when it has none.
    monet: str
    #: "" or why the chain with these attributes must stay as it is.
    refusal: Callable[[Sequence[Attributes]], str]
    #: Attributes of the new op.
    attributes: Callable[[Sequence[Attributes]], Dict[str, str]]
    #: False for those that save nothing in the pool: they are swapped in by hand.
    offered: bool = True


# ---------------------------------------------------------------------- conditions
def _copy(*names: str, **fixed: str) -> Callable[[Sequence[Attributes]], Dict[str, str]]:
    """Attributes of the chain's first op under the same names, and fixed ones."""
    def make(chain: Sequence[Attributes]) -> Dict[str, str]:
        return {**{n: chain[0][n] for n in names if n in chain[0]}, **fixed}
    return make


def _always(chain: Sequence[Attributes]) -> str:
    return ""


def _true(text: str) -> bool:
    return text.lower() in ("true", "1")


def _is_relu(attributes: Attributes) -> bool:
    return attributes.get("act_type", "relu") == "relu"


def _only_activation(kind: str) -> Callable[[Sequence[Attributes]], str]:
    def refusal(chain: Sequence[Attributes]) -> str:
        found = chain[-1].get("act_type", kind if kind == "relu" else "")
        return "" if found == kind else "the activation is %s, not %s" % (found, kind)
    return refusal


def _leaky(chain: Sequence[Attributes]) -> str:
    found = chain[-1].get("act_type", "leaky")
    if found != "leaky":
        return "the activation is %s, not leaky" % found
    if float(chain[-1].get("slope", 0.25)) < 0:
        return "a negative slope makes the output's sign useless"
    return ""


def _max_pooling(chain: Sequence[Attributes]) -> str:
    kind = chain[0].get("pool_type", "max")
    return "" if kind == "max" else "%s pooling needs no maxima" % kind


def _average_pooling(chain: Sequence[Attributes]) -> str:
    kind = chain[0].get("pool_type", "max")
    return "" if kind in ("avg", "sum") else "the gradient of %s pooling reads its input" % kind


def _batch_norm(chain: Sequence[Attributes]) -> str:
    if _true(chain[0].get("output_mean_var", "False")):
        return "mean and variance are outputs of this op"
    if "min_calib_range" in chain[0] or "max_calib_range" in chain[0]:
        return "the op is calibrated for quantization"
    return ""


def _layer_norm(chain: Sequence[Attributes]) -> str:
    if _true(chain[0].get("output_mean_var", "False")):
        return "mean and variance are outputs of this op"
    return ""


def _batch_norm_relu(chain: Sequence[Attributes]) -> str:
    return _batch_norm(chain) or ("" if _is_relu(chain[1]) else "the activation is not relu")


def _batch_norm_relu_convolution(chain: Sequence[Attributes]) -> str:
    if int(chain[0].get("axis", "1")) == 0:
        return "the channel axis of BatchNorm is the batch"
    return _batch_norm_relu(chain)


def _batch_norm_before(activation: str) -> Callable[[Sequence[Attributes]], str]:
    def refusal(chain: Sequence[Attributes]) -> str:
        found = chain[1].get("act_type", "leaky")
        if found != activation:
            return "the activation is %s, not %s" % (found, activation)
        if float(chain[1].get("slope", 0.25)) <= 0:
            return "without a positive slope the activation cannot be inverted"
        return _batch_norm(chain)
    return refusal


_CONVOLUTION = ("kernel", "stride", "dilate", "pad", "num_filter", "num_group", "workspace",
                "no_bias", "cudnn_tune", "cudnn_off", "layout")
_NORM = ("eps", "momentum", "fix_gamma", "use_global_stats", "axis", "cudnn_off")


def _norm_and(activation: str) -> Callable[[Sequence[Attributes]], Dict[str, str]]:
    def make(chain: Sequence[Attributes]) -> Dict[str, str]:
        return {**_copy(*_NORM)(chain), "act_type": activation,
                **{n: v for n, v in chain[1].items() if n == "slope"}}
    return make


def _norm_and_convolution(chain: Sequence[Attributes]) -> Dict[str, str]:
    norm = _copy(*_NORM)(chain)
    if "cudnn_off" in norm:
        norm["bn_cudnn_off"] = norm.pop("cudnn_off")
    # Four samples at a time: a small buffer, and enough work for all threads.
    return {**norm, **_copy(*_CONVOLUTION)(chain[2:]), "micro_batch": "4"}


_CATALOGUE = (
    VariantKind("mask_relu", (("relu", "Activation"),), "memonger_mask_relu", True,
                "1 bit an element", "output", "BinaryActReLU (intermediate-activated)",
                _only_activation("relu"), _copy()),
    VariantKind("mask_leaky_relu", (("LeakyReLU",),), "memonger_mask_leaky_relu", True,
                "1 bit an element", "input and output", "", _leaky, _copy("slope")),
    VariantKind("mask_clip", (("clip",),), "memonger_mask_clip", True,
                "1 bit an element", "input", "hardtanh, relu6", _always, _copy("a_min", "a_max")),
    VariantKind("mask_dropout", (("Dropout",),), "memonger_mask_dropout", True,
                "1 bit an element", "mask of the input's size", "dropout", _always,
                _copy("p", "mode", "axes", "cudnn_off")),
    VariantKind("max_pool", (("Pooling",),), "memonger_max_pool", True,
                "4 bits, 1 or 4 bytes an output", "input, output (and workspace)",
                "IndicesAct max_pool2d", _max_pooling,
                _copy("kernel", "stride", "pad", "pooling_convention", "global_pool", "layout",
                      "cudnn_off")),
    VariantKind("batch_norm_relu", (("BatchNorm",), ("relu", "Activation")),
                "memonger_batch_norm_relu", True, "input of BatchNorm",
                "input of BatchNorm, output", "BatchNorm recomputed in backward",
                _batch_norm_relu, _copy(*_NORM)),
    VariantKind("bn_relu_convolution", (("BatchNorm",), ("relu", "Activation"), ("Convolution",)),
                "memonger_bn_relu_convolution", True, "input of BatchNorm",
                "input of BatchNorm, output of ReLU", "BatchNorm and ReLU recomputed in backward",
                _batch_norm_relu_convolution, _norm_and_convolution),
    VariantKind("inplace_batch_norm", (("BatchNorm",),), "memonger_inplace_batch_norm", False,
                "output", "input", "OutputAct batch_norm", _batch_norm,
                _copy(*_NORM, act_type="identity")),
    VariantKind("inplace_batch_norm_leaky", (("BatchNorm",), ("LeakyReLU",)),
                "memonger_inplace_batch_norm", False, "output",
                "input of BatchNorm, input and output of LeakyReLU", "OutputAct batch_norm",
                _batch_norm_before("leaky"), _norm_and("leaky")),
    VariantKind("inplace_batch_norm_elu", (("BatchNorm",), ("LeakyReLU",)),
                "memonger_inplace_batch_norm", False, "output",
                "input of BatchNorm, input and output of LeakyReLU", "OutputAct batch_norm",
                _batch_norm_before("elu"), _norm_and("elu")),
    VariantKind("layer_norm", (("LayerNorm",),), "memonger_layer_norm", False, "output", "input",
                "OutputAct", _layer_norm, _copy("axis", "eps")),
    *(VariantKind("output_" + name, (("Activation",),), "memonger_activation", True, "output",
                  "input and output", "OutputAct", _only_activation(name), _copy("act_type"))
      for name in ("sigmoid", "tanh", "softrelu")),
    VariantKind("input_softsign", (("Activation",),), "memonger_activation", True, "input",
                "input and output", "", _only_activation("softsign"), _copy("act_type")),
    *(VariantKind("output_" + name, (("LeakyReLU",),), "memonger_leaky_relu", True, "output",
                  "input and output", "OutputAct", _only_activation(name),
                  _copy("act_type", "slope")) for name in ("elu", "selu")),
    VariantKind("input_prelu", (("LeakyReLU",),), "memonger_leaky_relu", True, "input",
                "input and output", "", _only_activation("prelu"), _copy("act_type")),
    VariantKind("concat", (("Concat", "concat"),), "memonger_concat", True, "nothing",
                "all inputs", "", _always, _copy("num_args", "dim")),
    VariantKind("avg_pool", (("Pooling",),), "memonger_avg_pool", True, "nothing",
                "input and output", "", _average_pooling,
                _copy("kernel", "stride", "pad", "pooling_convention", "global_pool", "layout",
                      "cudnn_off", "pool_type", "count_include_pad", "p_value")),
    VariantKind("micro_convolution", (("Convolution",),), "memonger_convolution", True,
                "input (workspace of one sample)", "input", "convolution algorithms", _always,
                _copy(*_CONVOLUTION, micro_batch="1"), offered=False),
)


def catalogue() -> Tuple[VariantKind, ...]:
    """Every variant, in the order in which :func:`candidates` offers them."""
    return _CATALOGUE


def kind(name: str) -> VariantKind:
    """The variant of that name.

    Raises
    ------
    UnknownOpError
        If there is none; the message lists them.
    """
    for item in _CATALOGUE:
        if item.name == name:
            return item
    raise UnknownOpError("no variant is called %r; there are %s"
                         % (name, ", ".join(item.name for item in _CATALOGUE)))


# ---------------------------------------------------------------------- reading a symbol
class _Nodes:
    """A symbol's JSON with the look-ups that matching needs."""

    def __init__(self, symbol_json: str):
        self.graph: Dict[str, Any] = json.loads(symbol_json)
        self.nodes: List[Dict[str, Any]] = self.graph["nodes"]
        self.uses: List[int] = [0] * len(self.nodes)
        for node in self.nodes:
            for source, _, _ in node["inputs"]:
                self.uses[source] += 1
        for head in self.graph["heads"]:
            self.uses[head[0]] += 1
        self.by_name = {node["name"]: i for i, node in enumerate(self.nodes)
                        if node["op"] != "null"}

    def chain(self, last: int, variant: VariantKind) -> List[int]:
        """Node ids of the chain that ends at ``last``; empty when the kinds do not fit."""
        found = [last]
        for position in range(len(variant.chain) - 1, -1, -1):
            node = self.nodes[found[0]]
            if node["op"] not in variant.chain[position] or node.get("subgraphs"):
                return []
            if position:
                source, output, _ = node["inputs"][0]
                # The value in between must be nobody else's.
                if output != 0 or self.uses[source] != 1:
                    return []
                found.insert(0, source)
        return found

    def twins(self) -> Dict[int, List[int]]:
        """For each node that computes what others do: all of these nodes, itself included.

        MXNet merges them before it takes gradients, as long as their attributes are the same; ops
        that draw random numbers or change a state are never merged.
        """
        number_of: Dict[Tuple[Any, ...], int] = {}
        groups: List[List[int]] = []
        number: List[int] = []
        for i, node in enumerate(self.nodes):
            key: Tuple[Any, ...] = (i,)
            if node["op"] not in _NEVER_MERGED:
                key = (node["op"], tuple(sorted(_attributes(node).items())),
                       tuple((number[source], output) for source, output, _ in node["inputs"]))
            if key not in number_of:
                number_of[key] = len(groups)
                groups.append([])
            number.append(number_of[key])
            groups[number[i]].append(i)
        return {i: group for group in groups if len(group) > 1 for i in group}

    def attributes(self, ids: Sequence[int]) -> List[Attributes]:
        return [_attributes(self.nodes[i]) for i in ids]


#: Ops of the catalogue (and variables) that are not merged with others that do the same.
_NEVER_MERGED = frozenset(("null", "Dropout", "BatchNorm", "Custom"))


@lru_cache(maxsize=2)
def _parsed(symbol_json: str) -> _Nodes:
    """A symbol to look at, not to change: callers ask about one symbol op by op."""
    return _Nodes(symbol_json)


def _attributes(node: Mapping[str, Any]) -> Dict[str, str]:
    return node.get("attrs", node.get("attr", node.get("param", {})))


def candidates(symbol_json: str, exact_only: bool = False) -> Dict[str, List[str]]:
    """For each op the variants that may take the place of the chain which it ends.

    Ops without any are left out.
    """
    nodes = _parsed(symbol_json)
    result: Dict[str, List[str]] = {}
    for name, last in nodes.by_name.items():
        for variant in _CATALOGUE:
            ids = nodes.chain(last, variant) if variant.offered else []
            if ids and (variant.exact or not exact_only) and \
                    not variant.refusal(nodes.attributes(ids)):
                result.setdefault(name, []).append(variant.name)
    return result


def refusals(symbol_json: str) -> Dict[str, Dict[str, str]]:
    """For each op the variants whose kinds fit and which are refused all the same, and why."""
    nodes = _parsed(symbol_json)
    result: Dict[str, Dict[str, str]] = {}
    for name, last in nodes.by_name.items():
        for variant in _CATALOGUE:
            ids = nodes.chain(last, variant)
            reason = variant.refusal(nodes.attributes(ids)) if ids else ""
            if reason:
                result.setdefault(name, {})[variant.name] = reason
    return result


def members(symbol_json: str, op: str, variant: str) -> Tuple[str, ...]:
    """Names of the ops that ``variant`` at ``op`` replaces, first to last."""
    nodes = _parsed(symbol_json)
    return tuple(nodes.nodes[i]["name"] for i in _checked(nodes, op, kind(variant)))


def _checked(nodes: _Nodes, op: str, variant: VariantKind) -> List[int]:
    if op not in nodes.by_name:
        raise UnknownOpError("the symbol has no op %r" % op)
    ids = nodes.chain(nodes.by_name[op], variant)
    if not ids:
        raise InputError("variant %s does not fit op %r: it replaces %s, each value in between "
                         "used only once" % (variant.name, op, " then ".join(
                             " or ".join(kinds) for kinds in variant.chain)))
    reason = variant.refusal(nodes.attributes(ids))
    if reason:
        raise InputError("variant %s does not fit op %r: %s" % (variant.name, op, reason))
    return ids


# ---------------------------------------------------------------------- rewriting
def swap_json(symbol_json: str, choice: Mapping[str, str]) -> str:
    """The symbol with the chosen variants.

    Ops that compute the same as a chosen one are swapped along, so that MXNet still merges them.

    Parameters
    ----------
    symbol_json : str
        ``symbol.tojson()``.
    choice : mapping
        Op name (the last of its chain) to variant name.

    Raises
    ------
    InputError
        If a variant does not fit its op, or two variants want the same op.
    """
    nodes = _Nodes(symbol_json)
    taken: Dict[int, str] = {}
    replaced: Dict[int, List[int]] = {}
    for op in sorted(choice):
        ids = _checked(nodes, op, kind(choice[op]))
        for i in ids:
            if i in taken:
                raise InputError("op %r is wanted by the variants at %r and at %r; choose one"
                                 % (nodes.nodes[i]["name"], taken[i], op))
            taken[i] = op
        replaced[ids[-1]] = ids
    twins = nodes.twins()
    for last, ids in replaced.items():
        variant = kind(choice[nodes.nodes[last]["name"]])
        alike = [i for i in twins.get(last, ()) if i not in taken] if len(ids) == 1 else []
        for i in [last] + alike:
            nodes.nodes[i] = _fused(nodes.nodes, ids if i == last else [i], variant)
            taken[i] = nodes.nodes[last]["name"]
    return _write(nodes.graph)


def _fused(nodes: Sequence[Dict[str, Any]], ids: Sequence[int],
           variant: VariantKind) -> Dict[str, Any]:
    """The new node; what it replaces is written into it with inputs by position."""
    inputs: List[List[int]] = []
    stored = []
    for place, i in enumerate(ids):
        wires = []
        for source, output, version in nodes[i]["inputs"]:
            if place and source == ids[place - 1]:
                wires.append([-1, output, version])  # the op before it in the chain
            else:
                inputs.append([source, output, version])
                wires.append([len(inputs) - 1, output, version])
        stored.append({**nodes[i], "inputs": wires})
    del stored[-1]["name"]  # the new op's; so equal ops stay equal
    last = _attributes(nodes[ids[-1]])
    attributes = {k: v for k, v in last.items() if k.startswith("__") and k.endswith("__")}
    attributes.update(variant.attributes([_attributes(nodes[i]) for i in ids]))
    attributes[ORIGINAL] = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    return {"op": variant.op, "name": nodes[ids[-1]]["name"], "attrs": attributes,
            "inputs": inputs}


def swapped(symbol_json: str) -> Dict[str, str]:
    """Op name to the operator that was swapped in there."""
    return {node["name"]: node["op"] for node in json.loads(symbol_json)["nodes"]
            if ORIGINAL in _attributes(node)}


def unswap_json(symbol_json: str) -> str:
    """The symbol with every swapped-in op replaced by what it stands for."""
    graph = json.loads(symbol_json)
    nodes = graph["nodes"]
    for i in range(len(nodes)):
        stored = _attributes(nodes[i]).get(ORIGINAL)
        if stored is None:
            continue
        chain, outer, before = json.loads(stored), nodes[i]["inputs"], -1
        for place, node in enumerate(chain):
            node["inputs"] = [[before, output, version] if source == -1 else outer[source]
                              for source, output, version in node["inputs"]]
            if place == len(chain) - 1:
                nodes[i] = {"name": nodes[i]["name"], **node}
            else:
                nodes.append(node)
                before = len(nodes) - 1
    return _write(graph)


def _write(graph: Dict[str, Any]) -> str:
    """JSON with the nodes that the heads need, in NNVM's order: depth first, inputs first."""
    nodes = graph["nodes"]
    order: List[int] = []
    state = [0] * len(nodes)
    for head in graph["heads"]:
        stack = [(head[0], 0)]
        while stack:
            node, position = stack.pop()
            if position == 0:
                if state[node]:
                    continue
                state[node] = 1
            needs = [wire[0] for wire in nodes[node]["inputs"]] + \
                nodes[node].get("control_deps", [])
            if position < len(needs):
                stack.append((node, position + 1))
                if not state[needs[position]]:
                    stack.append((needs[position], 0))
            else:
                order.append(node)
    place = {node: i for i, node in enumerate(order)}
    written = []
    for i in order:
        node = dict(nodes[i])
        node["inputs"] = [[place[wire[0]]] + list(wire[1:]) for wire in node["inputs"]]
        if "control_deps" in node:
            node["control_deps"] = [place[dep] for dep in node["control_deps"]]
        written.append(node)
    result = {k: v for k, v in graph.items() if k != "node_row_ptr"}
    result["nodes"] = written
    result["arg_nodes"] = [i for i, node in enumerate(written) if node["op"] == "null"]
    result["heads"] = [[place[head[0]]] + list(head[1:]) for head in graph["heads"]]
    return json.dumps(result)
