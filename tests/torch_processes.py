"""Two processes on loopback, as a job of two ranks."""
from __future__ import annotations

import socket
import time
from typing import Any, Callable

import torch.multiprocessing as processes


def run_two(work: Callable[..., None], *arguments: Any, limit_s: float) -> None:
    """Run ``work(rank, port, *arguments)`` as two processes; none outlives the call."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = processes.spawn(work, (port, *arguments), nprocs=2, join=False)
    deadline_s = time.monotonic() + limit_s
    try:
        while not workers.join(1.0):
            assert time.monotonic() < deadline_s, "the workers do not end"
    finally:
        for worker in workers.processes:
            worker.kill()
