"""Blocks of a module, each compiled on its own, in one step."""
from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Callable, List, Sequence, Union

import torch

from ...util.errors import InputError
from ..pytorch import private
from ..step.backend import Backend
from ..step.parts import in_step
from .tracing import clear_errors

#: Blocks as users name them: a pattern of paths, paths, or the modules.
Blocks = Union[str, Sequence[Union[str, torch.nn.Module]]]


def by_blocks(module: torch.nn.Module, paths: Sequence[str], kept: Backend,
              **options: Any) -> Callable[..., Any]:
    """The call of a module whose blocks are compiled in place."""
    for path in paths:
        block = module.get_submodule(path)
        call = in_step(kept, block, private.compiled_call(block, **options))
        private.compile_in_place(block, clear_errors(call, block))
    return clear_errors(in_step(kept, None, private.call_itself(module)), module)


def paths_of(module: Any, blocks: Blocks) -> List[str]:
    """The paths of blocks in a module.

    Raises InputError where there is none, and for what is no part of the module.
    """
    if not isinstance(module, torch.nn.Module):
        raise InputError("blocks= are those of a module, and this is a function")
    names = {part: name for name, part in module.named_modules()}
    found: List[str] = []
    for block in [blocks] if isinstance(blocks, str) else blocks:
        pattern = names.get(block) if isinstance(block, torch.nn.Module) else block
        matching = [name for name in names.values() if name and pattern and _fits(name, pattern)]
        if not matching:
            raise InputError("blocks= names %s, which is no part of the module; its parts are %s"
                             % (repr(block) if isinstance(block, str) else type(block).__name__,
                                ", ".join([n for n in names.values() if n][:8])))
        found += matching
    return list(dict.fromkeys(found))


def _fits(name: str, pattern: str) -> bool:
    """Whether each part of a path is as the pattern says."""
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
