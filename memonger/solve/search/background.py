"""The native search in the background, on another core.

ctypes lets other threads run while the library searches, so a second core is used without a
second process. The result does not depend on which of the two is done first: the caller waits.
"""
from __future__ import annotations

import ctypes
import threading
from typing import List, Optional, Tuple

from .decisions import Decisions, SearchResult
from .native import NativeSearch


class BackgroundSearch:
    """One run of :meth:`memonger.solve.search.native.NativeSearch.search` in a thread.

    Parameters
    ----------
    native : NativeSearch
        Nobody else may use it until the search is over.
    request
        Budget, work, time and seed, as
        :meth:`memonger.solve.search.native.NativeSearch.search` takes them.
    warm : Decisions, optional
        Where to start.
    crossover : bool
        As :meth:`memonger.solve.search.native.NativeSearch.search` takes it.
    """

    def __init__(self, native: NativeSearch, request: Tuple[int, int, float, int],
                 warm: Optional[Decisions], crossover: bool = False) -> None:
        self._stop = ctypes.c_int32(0)
        self._found: List[SearchResult] = []
        self._raised: List[BaseException] = []

        def run() -> None:
            try:
                self._found.append(native.search(*request, warm, stop=self._stop,
                                               crossover=crossover))
            except BaseException as error:  # noqa: B036 - raised again where it is waited for
                self._raised.append(error)

        self._thread = threading.Thread(target=run, name="memonger-search", daemon=True)
        self._thread.start()

    def result(self) -> SearchResult:
        """Wait for the end. Ctrl-C ends the search with the best so far."""
        try:
            self._thread.join()
        except KeyboardInterrupt:
            return self.stop()
        if self._raised:
            raise self._raised[0]
        return self._found[0]

    def stop(self) -> SearchResult:
        """End the search; the best so far."""
        self._stop.value = 1
        return self.result()
