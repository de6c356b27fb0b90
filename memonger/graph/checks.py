"""What :meth:`memonger.graph.types.Graph.check` asks of single ops, variants and tensors."""
from __future__ import annotations

import math
from typing import AbstractSet, Sequence

from .records import DTYPES, SPACES, Implementation, Inplace, Op, Tensor, Variant

#: No tensor has as many bytes, nor all of them together: sums stay exact.
MAX_SIZE_BYTES = 2 ** 60
#: No op takes as many seconds.
MAX_TIME_S = 2.0 ** 60


def check_op(ops: Sequence[Op], tensors: Sequence[Tensor], index: int, made: AbstractSet[int],
             host_tensors: AbstractSet[int]) -> None:
    """Raise ValueError where an op reads or names what cannot be.

    ``made``: ids of the tensors that some op makes.
    """
    op = ops[index]
    for number in op.inputs:
        if not 0 <= number < len(tensors):
            raise ValueError("op %r reads tensor %d, which does not exist" % (op.name, number))
        tensor = tensors[number]
        if tensor.producer >= 0 and number not in made:
            raise ValueError("op %r reads %r, which nothing makes" % (op.name, tensor.name))
        if tensor.producer >= index:
            raise ValueError("op %r reads %r before it is made" % (op.name, tensor.name))
    for number in op.outputs:
        if tensors[number].producer != index:
            raise ValueError("tensor %r names another producer than %r"
                             % (tensors[number].name, op.name))
    every_op, every_tensor = range(len(ops)), range(len(tensors))
    if not all(other in every_op for other in op.control_deps) or not (
            op.forward_op == -1 or op.forward_op in every_op) or op.device < 0:
        raise ValueError("op %r names an op or device that does not exist" % op.name)
    if op.runs and not all(output in range(len(op.outputs)) for output in op.kept_outputs):
        raise ValueError("op %r keeps an output that it does not have" % op.name)
    if op.hands_on != -1:
        _check_handed_on(ops, tensors, index)
    for own in op.implementations:
        if not all(number in every_tensor for number in own.inputs + own.outputs):
            raise ValueError("an implementation of op %r names a tensor that does not exist"
                             % op.name)
        _check_run(op.name, own)
        if host_tensors:
            _check_host(op, own, host_tensors)


def check_variant(ops: Sequence[Op], variant: Variant) -> None:
    """Raise ValueError where a variant chooses an op or implementation that is not there."""
    every_op = range(len(ops))
    if variant.op not in every_op or not all(
            index in every_op and number in range(len(ops[index].implementations))
            for index, number in variant.choices):
        raise ValueError("variant %r names what does not exist" % variant.name)


def check_tensor(ops: Sequence[Op], tensors: Sequence[Tensor], number: int) -> None:
    """Raise ValueError where a tensor has a size, a place or an owner that cannot be."""
    tensor = tensors[number]
    if not 0 <= tensor.size_bytes < MAX_SIZE_BYTES or min(tensor.shape, default=0) < 0 \
            or math.prod(tensor.shape) >= MAX_SIZE_BYTES:
        raise ValueError("tensor %r cannot have %r bytes" % (tensor.name, tensor.size_bytes))
    if tensor.producer != -1 and tensor.producer not in range(len(ops)):
        raise ValueError("no op makes tensor %r" % tensor.name)
    if tensor.space not in SPACES:
        raise ValueError("tensor %r lies in the unknown space %r; one of %s"
                         % (tensor.name, tensor.space, ", ".join(SPACES)))
    if tensor.dtype not in DTYPES:
        raise ValueError("tensor %r has the unknown dtype %r" % (tensor.name, tensor.dtype))
    if tensor.storage_of != -1:
        _check_view(ops, tensors, number)


def _check_handed_on(ops: Sequence[Op], tensors: Sequence[Tensor], index: int) -> None:
    """Raise ValueError where an op cannot hand on the value of a tensor."""
    op = ops[index]
    handed = tensors[op.hands_on] if 0 <= op.hands_on < len(tensors) else None
    # With a variant in use it renames what was fetched.
    renames = Inplace(0, 0, True) in op.inplace and len(op.inputs) == 1 \
        and (op.inputs == (op.hands_on,) or len(op.implementations) == 1)
    if handed is None or not 0 <= handed.producer < index or not renames or not op.is_backward \
            or (len(op.outputs), len(ops[handed.producer].outputs)) != (1, 1):
        raise ValueError("op %r hands on no value: in backward, under another name, the one result "
                         "of an op" % op.name)


def _check_host(op: Op, own: Implementation, host_tensors: AbstractSet[int]) -> None:
    """Raise ValueError where a value on the host is made twice, or shares memory."""
    if op.recomputable and not op.is_backward and not host_tensors.isdisjoint(own.outputs):
        raise ValueError("op %r makes a value on the host and may run again; say why it must "
                         "not: copies to the host are made once" % op.name)
    if any({own.inputs[option.input], own.outputs[option.output]} & host_tensors
           for option in own.inplace):
        raise ValueError("op %r cannot take memory of the host in place" % op.name)


def _check_view(ops: Sequence[Op], tensors: Sequence[Tensor], number: int) -> None:
    """Raise ValueError where a view does not lie in another tensor's memory."""
    view = tensors[number]
    owner = tensors[view.storage_of] if 0 <= view.storage_of < len(tensors) else view
    if owner.storage_of != -1 or (owner.size_bytes, owner.space) != (
            view.size_bytes, view.space) or view.space == "host":
        raise ValueError("tensor %r is a view of no tensor with memory of its own, and of as "
                         "many bytes" % view.name)
    if view.pooled and not any(
            option.identity and op.outputs[option.output] == number
            and view.storage_of in (op.inputs[option.input],
                                    tensors[op.inputs[option.input]].storage_of)
            for op in (ops[view.producer],) for option in op.inplace):
        raise ValueError("tensor %r is a view of %r, and its op does not rename that"
                         % (view.name, owner.name))


def _check_run(name: str, run: Implementation) -> None:
    """Raise ValueError where a position is that of no input or output, or a cost is negative."""
    inputs, outputs = range(len(run.inputs)), range(len(run.outputs))
    if not all(option.input in inputs and option.output in outputs for option in run.inplace) or \
            not all(position in inputs for position in run.ignored_inputs) or \
            not all(position in outputs for position in run.unwritten_outputs) or \
            not all(position in range(len(inputs) + len(outputs)) for position in run.own_buffers):
        raise ValueError("%r names an input or output that it does not have" % name)
    if not run.runs and (run.inputs or run.outputs or run.time_s or run.workspace_bytes):
        raise ValueError("an implementation of %r does not run, and takes or makes something"
                         % name)
    if run.adds_into_first and (len(inputs), len(outputs)) != (2, 1):
        raise ValueError("%r cannot add into the first of %d inputs and %d outputs"
                         % (name, len(inputs), len(outputs)))
    if not 0 <= run.time_s < MAX_TIME_S or not 0 <= run.workspace_bytes < MAX_SIZE_BYTES:
        raise ValueError("%r cannot take %r s and %r bytes of workspace"
                         % (name, run.time_s, run.workspace_bytes))
