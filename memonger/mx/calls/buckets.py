"""Plans for the buckets of a BucketingModule: on demand, ahead in the background, kept on disk."""
from __future__ import annotations

import hashlib
import inspect
import json
import os
import threading
from typing import Any, Callable, Dict, Hashable, Iterable, List, Mapping, Sequence, Set, Tuple

from ...plans.plan import Budget, Plan
from ...plans.plan_file import load_plan
from ...util import argument_checks as check
from ...util.errors import InputError, MemongerError
from ...util.files import cache_folder
from ...util.json_files import plain
from ...util.units import parse_bytes
from ...util.version import __version__
from ..memory.stated_gpu import place, resolve_budget
from ..plugin.environment import mkldnn_is_on
from ..symbol.common_subexpressions import to_json
from .plan import estimate, plan

#: What a bucket's symbol generator gives.
Generated = Tuple[Any, Sequence[str], Sequence[str]]


class PlannedBuckets:
    """A symbol generator for ``mx.mod.BucketingModule`` whose networks are planned.

    ::

        buckets = memonger.PlannedBuckets(sym_gen, shapes, budget="1GB")
        module = mx.mod.BucketingModule(buckets, default_bucket_key=60)
        buckets.prepare([10, 20, 30])       # while the first batches train

    Each bucket is planned once, when it is first asked for or named by :meth:`prepare`; its plan
    is kept on disk, by network, shapes, options and memonger's version. The buckets of a module
    share memory: a step takes what its largest bucket takes, so a budget for each is one for all.

    Parameters
    ----------
    generator : callable
        From a bucket's key to ``(symbol, data_names, label_names)``, as for ``BucketingModule``.
    shapes : callable
        From a bucket's key to the shapes of its inputs, as for :func:`memonger.plan`.
    unplanned_within : int or str, optional
        A bucket without a plan trains unplanned while it is planned in the background, where that
        takes no more than this: bytes, "8GB", or "auto" for what the GPU ``ctx`` has free less 5 %.
        :meth:`replace_in` then puts the plan in its place. The bucket asked for first, whose
        memory all others share, waits for its plan.
    cache : bool
        Keep plans on disk, in ``$MEMONGER_CACHE_DIR`` or ``~/.cache/memonger``, under ``plans``.
    **options
        As for :func:`memonger.plan`: ``budget``, ``variants``, ``time_limit``, ...

    Raises
    ------
    InputError
        If ``generator`` or ``shapes`` cannot be called. What :func:`memonger.plan` raises is
        raised when the bucket is asked for.
    """

    def __init__(self, generator: Callable[[Any], Generated],
                 shapes: Callable[[Any], Mapping[str, Sequence[int]]], cache: bool = True,
                 unplanned_within: Budget = None, **options: Any) -> None:
        check.function("generator", generator)
        check.function("shapes", shapes)
        if "shapes" in options or "data_iter" in options:
            raise InputError("shapes are a function from a bucket's key to its shapes")
        self._generator, self._shapes, self._options = generator, shapes, options
        self._cache = cache
        self._unplanned_within = unplanned_within
        self._unplanned: Set[Hashable] = set()
        self._first: List[Hashable] = []
        self._alone = threading.Lock()
        self._of_key: Dict[Hashable, threading.Lock] = {}
        self._plans: Dict[Hashable, Plan] = {}

    def __call__(self, key: Any) -> Generated:
        """The planned symbol of a bucket, with the names of its data and labels."""
        symbol, data_names, label_names = self._generator(key)
        with self._alone:
            self._first = self._first or [key]
            new = key != self._first[0] and key not in self._of_key
        if new and self._fits_unplanned(key, symbol):
            self._unplanned.add(key)
            self.prepare([key])
        if key in self._unplanned and key not in self._plans:
            return symbol, data_names, label_names
        return self.plan(key).symbol, data_names, label_names

    def plan(self, key: Any) -> Plan:
        """The plan of a bucket; waits where it is being made.

        Parameters
        ----------
        key
            Of the bucket.

        Returns
        -------
        Plan

        Raises
        ------
        MemongerError
            As :func:`memonger.plan`.
        """
        with self._alone:
            lock = self._of_key.setdefault(key, threading.Lock())
        with lock:
            if key not in self._plans:
                self._plans[key] = self._made(key)
            return self._plans[key]

    def prepare(self, keys: Iterable[Any]) -> threading.Thread:
        """Plan buckets in the background, one after the other.

        A bucket that cannot be planned raises when it is asked for, not here.

        Parameters
        ----------
        keys : iterable
            Of the buckets.

        Returns
        -------
        threading.Thread
            Started; join it to wait for all of them.
        """
        waiting: List[Any] = list(keys)

        def run() -> None:
            for key in waiting:
                try:
                    self.plan(key)
                except MemongerError:
                    continue

        thread = threading.Thread(target=run, name="memonger-buckets", daemon=True)
        thread.start()
        return thread

    def replace_in(self, module: Any) -> List[Any]:
        """Take buckets off a module that train unplanned and have their plan by now.

        Their next batch binds the planned network; parameters and optimizer stay. Call it between
        batches: ``module.fit(..., batch_end_callback=lambda _: buckets.replace_in(module))``.

        Parameters
        ----------
        module : mx.mod.BucketingModule
            The one that this generator was given to.

        Returns
        -------
        list
            Keys of the buckets.
        """
        ready = [key for key in self._unplanned if key in self._plans and key in module._buckets]
        for key in ready:
            if module._curr_bucket_key == key:
                module.switch_bucket(module._default_bucket_key, None)
            del module._buckets[key]
            self._unplanned.discard(key)
        return ready

    def _fits_unplanned(self, key: Any, symbol: Any) -> bool:
        """Whether a bucket may train before it has a plan; not one whose plan is on disk."""
        shapes = dict(self._shapes(key))
        if self._unplanned_within is None or \
                (self._cache and os.path.exists(self._path(symbol, shapes))):
            return False
        known = inspect.signature(estimate).parameters
        options = {name: value for name, value in self._options.items() if name in known}
        most = resolve_budget(self._unplanned_within,
                              place(options.get("ctx"), options.get("device")))
        return estimate(symbol, shapes=shapes, **options).total_bytes <= parse_bytes(most or 0)

    def _made(self, key: Any) -> Plan:
        symbol = self._generator(key)[0]
        shapes = dict(self._shapes(key))
        path = self._path(symbol, shapes)
        if self._cache and os.path.exists(path):
            try:
                return load_plan(path)
            except MemongerError:
                pass  # damaged, or of another time: it is made again
        made = plan(symbol, shapes=shapes, **self._options)
        if self._cache:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            made.save(path)
        return made

    def _path(self, symbol: Any, shapes: Mapping[str, Sequence[int]]) -> str:
        asked = {name: value for name, value in self._options.items() if name != "progress"}
        text = json.dumps([to_json(symbol), shapes, asked, __version__, mkldnn_is_on()],
                          sort_keys=True, default=plain)
        return os.path.join(cache_folder("plans"),
                            hashlib.sha256(text.encode()).hexdigest()[:32] + ".json")
