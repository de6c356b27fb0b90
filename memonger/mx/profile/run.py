"""Measures op times of a network on the device that will train it."""
from __future__ import annotations

import os
import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ...plans.plan import Progress
from ...report.formatting import counted
from ...util import machine
from ...util.cuda_libraries import reported_name
from ..capture.binding import GradReq, first_line
from ..capture.record import Captured, read
from ..costs.models import Profile, roofline
from ..costs.profile_files import find_profile, save_profile
from ..memory.stated_gpu import StatedGpu
from ..plugin.environment import logger, mxnet
from .alone import measure_alone
from .in_place import by_signature, step_seconds
from .variants import SwappedNetwork, seconds_with_neighbours, swapped_networks


def circumstances(ctx: Any = None) -> Dict[str, Any]:
    """Conditions of measured times: device, CPU, threads, versions, MXNet's switches."""
    mx = mxnet()
    ctx = ctx or mx.current_context()
    cpu = machine.cpu_name()
    threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    device = "%s, %s" % (cpu, counted(threads, "thread"))
    if ctx.device_type == "gpu":
        device = reported_name(ctx.device_id)
    return {"device": device, "cpu": cpu, "threads": threads, "mxnet": mx.__version__,
            "mkldnn": os.environ.get("MXNET_MKLDNN_ENABLED", "1"),
            "engine": os.environ.get("MXNET_ENGINE_TYPE", "")}


def stored_profile(ctx: Any = None) -> Optional[Profile]:
    """Times that :func:`profile` measured on this device before; None if there are none."""
    return None if isinstance(ctx, StatedGpu) else find_profile(circumstances(ctx))


def profile(symbol: Any, shapes: Mapping[str, Sequence[int]],
            type_dict: Optional[Mapping[str, Any]] = None, grad_req: GradReq = "write",
            ctx: Any = None, time_limit: float = 60.0, path: Optional[str] = None,
            repeats: int = 5,
            progress: Optional[Callable[[Progress], None]] = None) -> Profile:
    """Measure the ops of a network, and of the variants it offers, and store the times.

    In the network itself where the memory suffices for it unplanned; what is missing then is
    measured alone.

    ``symbol``, ``shapes``, ``type_dict``, ``grad_req``, ``ctx``: the training step, as for
        ``mx.read``.
    ``time_limit``: seconds; what is not measured by then is estimated (``Profile.op_times`` says
        which).
    ``path``: the file; by default one in the cache folder, named after the device. Older times for
        the same device and software stay in it.
    ``repeats``: runs of which the median counts, after one that warms up.
    ``progress``: called with a :class:`memonger.Progress`.
    Raises InputError for a network that cannot be bound, or a ``path`` with times of another
    device.
    """
    mx = mxnet()
    ctx = ctx or mx.current_context()
    captured = read(symbol, shapes, type_dict, grad_req, ctx)
    facts = circumstances(ctx)
    older = find_profile(facts, path)
    times: Dict[str, float] = dict(older.times_s) if older else {}
    fallback = roofline("cpu" if ctx.device_type == "cpu" else "v100")
    started_s = time.perf_counter()

    def tell(fraction: float) -> None:
        if progress is not None:
            progress(Progress("measuring", time.perf_counter() - started_s, fraction=fraction))

    result = Profile(facts["device"], times, fallback, facts)
    missing = result.op_times(captured.graph, captured.attributes).estimated
    binding = (type_dict, grad_req, ctx)

    def read_again(other: Any) -> Captured:
        return read(other, shapes, *binding)

    swapped = [
        found for found in swapped_networks(symbol, captured.graph, read_again,
                                            ctx.device_type == "gpu")
        if not found.signatures() <= set(times)]
    if (missing or swapped) and _fits(captured, ctx):
        try:
            if not _measure_in_place(captured, symbol, shapes, binding, swapped, times,
                                     time_limit, repeats, tell):
                logger.info("the network runs other ops than it was read with")
        except mx.base.MXNetError as error:
            logger.info("the network cannot be run unplanned: %s", first_line(error))
    networks = [captured, *(found.captured for found in swapped)]
    for number, network in enumerate(networks):
        left_s = max(1.0, time_limit - (time.perf_counter() - started_s))
        measure_alone(network.graph, network.attributes, ctx, times, fallback, left_s,
                      repeats, _part_of(tell, number, len(networks)))
    save_profile(result, path)
    return result


def step_times(symbol: Any, shapes: Mapping[str, Sequence[int]], ctx: Any, time_limit_s: float,
               repeats: int) -> Dict[str, float]:
    """The least seconds of the ops of a network and of its variants, by signature."""
    binding = (None, "write", ctx or mxnet().cpu())
    captured = read(symbol, shapes, *binding)
    swapped = list(swapped_networks(symbol, captured.graph,
                                    lambda other: read(other, shapes, *binding),
                                    binding[2].device_type == "gpu"))
    times: Dict[str, float] = {}
    _measure_in_place(captured, symbol, shapes, binding, swapped, times, time_limit_s, repeats,
                      lambda fraction: None, min)
    return times


def _measure_in_place(captured: Captured, symbol: Any, shapes: Mapping[str, Sequence[int]],
                      binding: Tuple[Any, Any, Any], swapped: Sequence[SwappedNetwork],
                      times: Dict[str, float], time_limit_s: float, repeats: int,
                      tell: Callable[[float], None],
                      of: Callable[[List[float]], float] = statistics.median) -> bool:
    """Add times of the network and its variants; False if the ops that ran are not those read."""
    started_s = time.perf_counter()
    parts = 1 + len(swapped)
    graph = captured.graph
    base_s = step_seconds(graph, symbol, shapes, *binding, time_limit_s / parts, repeats,
                          _part_of(tell, 0, parts), of)
    if base_s is None:
        return False
    times.update(by_signature(graph, captured.attributes, base_s))
    for number, network in enumerate(swapped, 1):
        left_s = time_limit_s - (time.perf_counter() - started_s)
        if left_s <= 0:
            break
        found_s = step_seconds(network.captured.graph, network.symbol, shapes, *binding,
                               left_s / (parts - number), repeats, _part_of(tell, number, parts),
                               of)
        if found_s is not None:
            variants_s = seconds_with_neighbours(graph, base_s, network, found_s)
            times.update(by_signature(network.captured.graph, network.captured.attributes,
                                      variants_s))
    return True


def _part_of(tell: Callable[[float], None], number: int, parts: int) -> Callable[[float], None]:
    """Progress of one part of several."""
    return lambda fraction: tell((number + fraction) / parts)


def _fits(captured: Captured, ctx: Any) -> bool:
    """Whether the unplanned network fits into free memory, with room to spare."""
    needed = (captured.pool_bytes + sum(captured.fixed_bytes.values())) * 1.3
    if ctx.device_type == "gpu":
        free, _ = mxnet().context.gpu_memory_info(ctx.device_id)
        return bool(needed < free)
    return needed < machine.available_bytes()
