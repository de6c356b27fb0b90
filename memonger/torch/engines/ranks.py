"""The ranks of a job, which must plan alike: each runs the collectives of its own plan."""
from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist

from ...plans.plan import Plan
from ...util.errors import PlanMismatch


def count() -> int:
    """How many ranks the job has; 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def check_alike(plan: Plan) -> None:
    """Raise PlanMismatch on every rank unless all have the same plan of the same graph."""
    if count() < 2 or dist.get_backend() == "fake":
        return
    text = repr((plan.graph.fingerprint, plan.schedule)).encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    device = torch.device("cuda", torch.cuda.current_device()) \
        if dist.get_backend() == "nccl" else torch.device("cpu")
    mine = torch.tensor([digest], device=device)
    all_of_them = [torch.empty_like(mine) for _ in range(count())]
    dist.all_gather(all_of_them, mine)
    others = [rank for rank, other in enumerate(all_of_them) if int(other) != int(all_of_them[0])]
    if others:
        raise PlanMismatch(
            "rank %s plans otherwise than rank 0: their graphs or times of operators differ; give "
            "all ranks the same shapes, and costs=\"reference\" where devices differ"
            % ", ".join(map(str, others)), plan.graph.fingerprint, "")
