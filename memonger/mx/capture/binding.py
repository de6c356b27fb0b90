"""Binding a symbol without taking memory.

MXNet plans the memory of an executor while it binds, from shapes alone. Argument arrays made
with delayed allocation never touch memory, so a network of any batch size binds on a small
machine in a fraction of a second, and what MXNet planned can be read off.
"""
from __future__ import annotations

import contextlib
import json
import operator
import re
from collections import Counter
from typing import (
    AbstractSet,
    Any,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np

from ...util import argument_checks as check
from ...util.errors import BindError, InputError, ShapeError
from ...util.messages import listed
from ..memory.stated_gpu import StatedGpu
from ..plugin.environment import mxnet
from ..symbol.common_subexpressions import to_json

GradReq = Union[str, Sequence[str], Mapping[str, str]]

#: Where MXNet counts the elements of an array in 32 bits.
_MOST_ELEMENTS = 2 ** 31
#: ``file:line: Check failed: condition (values) : what it means``
_CHECK = re.compile(r"(?:\S+:\d+: )?Check failed: .*?(\([^()]* vs\. [^()]*\))?\s?: (\w.*)")
_IN_OP = re.compile(r"Error in operator ([^:\s]+): ")
#: Most arguments that an error names.
_MOST_NAMED = 12


class Arguments(NamedTuple):
    """What a symbol is bound with; all tuples in the order of ``list_arguments()``."""

    names: Tuple[str, ...]
    shapes: Tuple[Tuple[int, ...], ...]
    dtypes: Tuple[str, ...]
    grad_reqs: Tuple[str, ...]
    aux_names: Tuple[str, ...]
    aux_shapes: Tuple[Tuple[int, ...], ...]
    aux_dtypes: Tuple[str, ...]
    #: Arguments that the caller named: data and labels, as opposed to parameters.
    input_names: Tuple[str, ...]


def infer_arguments(symbol: Any, shapes: Mapping[str, Sequence[int]],
                    type_dict: Optional[Mapping[str, Any]] = None,
                    grad_req: GradReq = "write") -> Arguments:
    """Shapes and dtypes of every argument and aux state, as ``simple_bind`` would infer them.

    Raises ShapeError if shapes are missing (the error names the inputs) or contradict each other.
    Raises InputError if a name is not an argument, or a ``grad_req`` is not write, add or null.
    """
    names = tuple(symbol.list_arguments())
    aux_names = tuple(symbol.list_auxiliary_states())
    known = set(names) | set(aux_names)
    unknown = sorted(set(shapes) - known)
    if unknown:
        raise ShapeError("the network has no input named %s; its arguments are: %s"
                         % (", ".join(map(repr, unknown)), listed(names, _MOST_NAMED)), unknown)
    clean = {name: checked_shape(name, shape) for name, shape in shapes.items()}
    try:
        arg_shapes, _, aux_shapes = symbol.infer_shape_partial(**clean)
    except Exception as error:  # MXNet raises Exception itself where a tensor is too large
        raise ShapeError("the shapes do not fit the network: %s" % first_line(error)) from error
    missing = [name for name, shape in zip(names + aux_names,
                                           list(arg_shapes) + list(aux_shapes))
               if not is_known(shape)]
    if missing:
        missing = _leading(symbol, missing) or missing
        raise ShapeError("the shapes of these inputs are not known and cannot be inferred: %s; "
                         "give them as keyword arguments, for example %s=(32, 3, 224, 224)"
                         % (listed(missing, _MOST_NAMED), missing[0]), missing)
    dtypes, aux_dtypes = _infer_types(symbol, type_dict or {}, known)
    return Arguments(names, tuple(map(tuple, arg_shapes)), dtypes,
                     _grad_reqs(names, grad_req), aux_names, tuple(map(tuple, aux_shapes)),
                     aux_dtypes, tuple(n for n in names if n in shapes))


def checked_shape(name: str, shape: Any) -> Tuple[int, ...]:
    """The shape of an input as a tuple of int.

    Raises ShapeError if it is not a sequence of integers.
    """
    if hasattr(shape, "shape"):
        raise ShapeError("the shape of %r must be a tuple of integers, not %s; give that "
                         "array's shape: %s=array.shape"
                         % (name, check.kind_of(shape), name), [name])
    try:
        return tuple(operator.index(n) for n in shape)
    except TypeError:
        raise ShapeError("the shape of %r must be a tuple of integers, not %r"
                         % (name, shape), [name]) from None


def infers_all(symbol: Any, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether the shapes given tell those of every argument and aux state."""
    try:
        arg_shapes, _, aux_shapes = symbol.infer_shape_partial(**shapes)
    except Exception:  # some ops fail where they do not know an input yet
        return False
    return all(map(is_known, [*arg_shapes, *aux_shapes]))


def is_known(shape: Optional[Sequence[int]]) -> bool:
    """Whether every dimension of a shape is known."""
    if shape is None:
        return False
    if mxnet().util.is_np_shape():
        return all(n >= 0 for n in shape)
    # Legacy shape semantics: () and a 0 mean "not known".
    return len(shape) > 0 and all(n > 0 for n in shape)


def _leading(symbol: Any, names: Sequence[str]) -> List[str]:
    """Those of ``names`` that are the first input of an op: data, from which the rest follows."""
    nodes = json.loads(to_json(symbol))["nodes"]
    first = {nodes[node["inputs"][0][0]]["name"] for node in nodes if node["inputs"]}
    return [name for name in names if name in first]


def _attributes(symbol: Any) -> Dict[str, Mapping[str, str]]:
    """Attributes by name, as in ``attr_dict``, which fails at a ``$`` in a name."""
    return {node["name"]: node.get("attrs", {}) for node in json.loads(to_json(symbol))["nodes"]}


def _infer_types(symbol: Any, type_dict: Mapping[str, Any],
                 known: AbstractSet[str]) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """As ``simple_bind``: float32 where nothing else is said.

    Unlike it, this works when only some types are given, and where float32 everywhere contradicts
    casts in the network: then it infers the rest from the types given, as ``Module`` does.
    """
    unknown = sorted(set(type_dict) - known)
    if unknown:
        raise InputError("type_dict names %s, which the network does not have"
                         % ", ".join(map(repr, unknown)))
    mx = mxnet()
    given = {name: check.dtype("type_dict[%r]" % name, dtype)
             for name, dtype in type_dict.items()}
    attributes = _attributes(symbol)
    names = symbol.list_arguments()
    free = [(name, position) for position, name in enumerate(names)
            if name not in given and "__dtype__" not in attributes.get(name, {})]
    types = None
    try:
        if not given:
            with contextlib.suppress(mx.MXNetError):
                types, _, aux_types = symbol.infer_type_partial(
                    **{name: np.dtype(np.float32) for name, _ in free})
        if types is None:
            types, _, aux_types = symbol.infer_type_partial(**given)
        for name, position in free:  # one at a time: each may settle others
            if types[position] is None:
                given[name] = np.dtype(np.float32)
                types, _, aux_types = symbol.infer_type_partial(**given)
    except (mx.MXNetError, TypeError) as error:
        raise InputError("the dtypes do not fit the network: %s" % first_line(error)) from error
    return (tuple(np.dtype(t).name for t in types),
            tuple(np.dtype(np.float32 if t is None else t).name for t in aux_types))


def _grad_reqs(names: Sequence[str], grad_req: GradReq) -> Tuple[str, ...]:
    if isinstance(grad_req, str):
        reqs = tuple(grad_req for _ in names)
    elif isinstance(grad_req, Mapping):
        unknown = sorted(set(grad_req) - set(names))
        if unknown:
            raise InputError("grad_req names %s, which the network does not have"
                             % ", ".join(map(repr, unknown)))
        reqs = tuple(grad_req.get(name, "null") for name in names)
    elif isinstance(grad_req, (list, tuple)):
        reqs = tuple(grad_req)
        if len(reqs) != len(names):
            raise InputError("grad_req lists %d requests for %d arguments"
                             % (len(reqs), len(names)))
    else:
        raise InputError("grad_req must be 'write', 'add', 'null' or a dictionary by name, not %r"
                         % (grad_req,))
    for name, req in zip(names, reqs):
        if req not in ("write", "add", "null"):
            raise InputError("grad_req of %r is %r; it must be 'write', 'add' or 'null'"
                             % (name, req))
    return reqs


def sparse_gradients(symbol: Any) -> FrozenSet[str]:
    """Arguments whose gradient has rows only, as ``simple_bind`` would infer.

    ``Embedding(sparse_grad=True)`` makes no other; where several ops read the weight, MXNet adds
    their gradients to a dense one.
    """
    nodes = json.loads(to_json(symbol))["nodes"]
    readers = Counter(source[0] for node in nodes for source in node["inputs"])
    found = set()
    for node in nodes:
        wanted = node.get("attrs", {}).get("sparse_grad", "False") in ("True", "true", "1")
        if node["op"] == "_contrib_SparseEmbedding" or (node["op"] == "Embedding" and wanted):
            weight = node["inputs"][1][0]
            if nodes[weight]["op"] == "null" and readers[weight] == 1:
                found.add(nodes[weight]["name"])
    return frozenset(found)


def bind_delayed(symbol: Any, arguments: Arguments, ctx: Any = None,
                 group2ctx: Optional[Mapping[str, Any]] = None) -> Any:
    """Bind with arrays that are never allocated; MXNet plans memory as for real arrays.

    Raises BindError with MXNet's own reason.
    """
    mx = mxnet()
    from mxnet.ndarray.ndarray import _new_alloc_handle
    if ctx is None or isinstance(ctx, StatedGpu):  # the plan of memory is the same on a CPU
        ctx = mx.cpu()
    check_devices([ctx, *(group2ctx or {}).values()])
    long_sizes = mx.runtime.Features().is_enabled("INT64_TENSOR_SIZE")
    attributes = _attributes(symbol) if group2ctx else {}

    def delayed(name: str, shape: Sequence[int], dtype: str, is_sparse: bool = False) -> Any:
        group = attributes.get(name, {}).get("__ctx_group__", "")
        context = group2ctx.get(group, ctx) if group2ctx else ctx  # as simple_bind does
        if not long_sizes and np.prod(shape, dtype=np.float64) >= _MOST_ELEMENTS:
            raise BindError("%s would be of shape %s; this MXNet has no arrays of 2^31 elements "
                            "and more, make the batch smaller" % (name, tuple(shape)))
        if is_sparse:  # no rows yet, no memory
            return mx.nd.sparse.zeros("row_sparse", shape, context, dtype)
        return mx.nd.NDArray(_new_alloc_handle(tuple(shape), context, True, np.dtype(dtype).type))

    a = arguments
    args: List[Any] = list(map(delayed, a.names, a.shapes, a.dtypes))
    sparse = sparse_gradients(symbol)
    grads = {n: delayed(n, s, d, n in sparse)
             for n, s, d, r in zip(a.names, a.shapes, a.dtypes, a.grad_reqs) if r != "null"}
    aux = list(map(delayed, a.aux_names, a.aux_shapes, a.aux_dtypes))
    try:
        return symbol.bind(ctx, args=args, args_grad=grads,
                           grad_req=dict(zip(a.names, a.grad_reqs)), aux_states=aux,
                           group2ctx=dict(group2ctx) if group2ctx else None)
    except mx.MXNetError as error:
        raise BindError("MXNet cannot bind this network: %s" % first_line(error)) from error


def check_devices(places: Sequence[Any]) -> None:
    """Raise BindError for a GPU where MXNet has no CUDA: binding there would end the process."""
    if any(place.device_type == "gpu" for place in places) and \
            not mxnet().runtime.Features().is_enabled("CUDA"):
        raise BindError("this MXNet is built without CUDA, it has no operators for a GPU; install "
                        "mxnet-cu112==1.9.1 in place of mxnet, or plan for a GPU by its name, as "
                        "in device=\"v100\" (--device v100), or for the CPU")


def first_line(error: BaseException) -> str:
    """The line of an MXNet error that says what happened, without the stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "Check failed" in line or "Error in operator" in line:
            words = _IN_OP.sub("", line.replace("MXNetError: ", "").split("] ", 1)[-1])
            told, op = _CHECK.match(words), _IN_OP.search(line)
            return ("op %r: " % op.group(1) if op else "") + (
                " ".join(filter(None, told.groups()[::-1])) if told else words)
        if line.startswith("_Map_base"):
            return ("fusion of point-wise ops misses an attribute of an op; set "
                    "MXNET_USE_FUSION=0, or name act_type in each LeakyReLU")
    skip = ("Traceback", "File \"", "[bt]", "Stack trace", "---", "infer_shape error", "Arguments")
    for line in lines:
        if not line.startswith(skip):
            return line.replace("MXNetError: ", "")
    return lines[0] if lines else type(error).__name__
