"""What :meth:`memonger.graph.types.Graph.check` asks of single ops and tensors."""
from __future__ import annotations

from typing import AbstractSet, Sequence

from .records import Implementation, Inplace, Op, Tensor

#: No tensor has as many bytes, nor all of them together: sums stay exact.
MAX_SIZE_BYTES = 2 ** 60
#: No op takes as many seconds.
MAX_TIME_S = 2.0 ** 60


def check_handed_on(ops: Sequence[Op], tensors: Sequence[Tensor], index: int) -> None:
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


def check_host(op: Op, own: Implementation, host_tensors: AbstractSet[int]) -> None:
    """Raise ValueError where a value on the host is made twice, or shares memory."""
    if op.recomputable and not op.is_backward and not host_tensors.isdisjoint(own.outputs):
        raise ValueError("op %r makes a value on the host and may run again; say why it must "
                         "not: copies to the host are made once" % op.name)
    if any({own.inputs[option.input], own.outputs[option.output]} & host_tensors
           for option in own.inplace):
        raise ValueError("op %r cannot take memory of the host in place" % op.name)


def check_view(ops: Sequence[Op], tensors: Sequence[Tensor], number: int) -> None:
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


def check_run(name: str, run: Implementation) -> None:
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
