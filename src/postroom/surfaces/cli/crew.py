"""Several processes that do the same; one that ends before it is told to is replaced."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger(__name__)

_TOO_SOON_S = 1.0
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Crew:
    """The parent: it starts the others, waits, and passes on that it is time to stop.

    It must hold no threads and no connections when it starts them, for they would be copied; what
    needs some is done `apart`.
    """

    def __init__(self, count: int, work: Callable[[], object]) -> None:
        self._count = count
        self._work = work
        self._started_at: dict[int, float] = {}
        self._is_stopping = False

    def run(self) -> None:
        """Return when all have ended, after SIGTERM or SIGINT."""
        before = [signal.signal(number, self._stop) for number in _SIGNALS]
        try:
            for _ in range(self._count):
                self._start()
            while self._started_at:
                self._wait()
        finally:
            self._stop()
            for number, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(number, handler)

    def _start(self) -> None:
        sys.stdout.flush()
        # A signal waits until the child has its own answer to it, and we know of the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        process = os.fork()
        if process == 0:
            self._be_one()
        self._started_at[process] = time.monotonic()
        if self._is_stopping:
            os.kill(process, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _be_one(self) -> None:
        code = 1
        try:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            _end_with_parent()
            self._work()
            code = 0
        except Exception:
            log.exception("worker.failed")
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _wait(self) -> None:
        process, status = os.wait()
        started_at = self._started_at.pop(process, None)
        if started_at is None or self._is_stopping:
            return
        log.error("worker.ended", extra={"pid": process, "status": status})
        if time.monotonic() - started_at < _TOO_SOON_S:
            time.sleep(_TOO_SOON_S)
        if not self._is_stopping:
            self._start()

    def _stop(self, *_: object) -> None:
        self._is_stopping = True
        for process in self._started_at:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)


def apart(work: Callable[[], int]) -> int:
    """Do something in a process of its own and return its exit code: no thread of it stays here."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            _end_with_parent()
            code = work()
        except Exception:
            log.exception("worker.failed")
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _end_with_parent() -> None:
    """Be told to stop when the parent is killed; only Linux knows how."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
