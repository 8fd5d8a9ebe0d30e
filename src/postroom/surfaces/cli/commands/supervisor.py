"""The supervisor of `serve --workers`: starts worker processes and replaces those that end."""

from __future__ import annotations

import logging
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

log = logging.getLogger(__name__)

TRIES = 4
"""The supervisor gives up after so many failures in a row of every worker."""

_TOO_SOON_S = 1.0
_MAX_PAUSE_S = 30.0
_LOOK_S = 0.1
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Work = Callable[[int, Callable[[], None]], int]
"""What a worker runs, given its number and a callback for when it is ready. Returns an exit
code."""


@dataclass(slots=True)
class _Worker:
    """One worker: its process, when it was started, and how often in a row it failed to start."""

    process: int = 0
    started_at: float = 0.0
    failures: int = 0
    due_at: float = 0.0


class Supervisor:
    """The parent process: it forks the workers, waits, and forwards signals. It must have no
    threads and no connections when it forks; what needs them runs in `run_in_child`.
    """

    def __init__(self, count: int, work: Work) -> None:
        self._work = work
        self._workers = [_Worker() for _ in range(count)]
        # One shared byte per worker, which it sets when it is ready.
        self._at_work = mmap.mmap(-1, count)
        self._is_stopping = False
        self._code = 0

    def run(self) -> int:
        """Return when all workers have ended: 0 after SIGTERM or SIGINT, or the exit code of the
        last one if none can start.
        """
        before = [signal.signal(number, self._stop) for number in _SIGNALS]
        try:
            while not self._is_stopping or self._present():
                self._start_due()
                self._wait()
        finally:
            self._stop()
            for number, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(number, handler)
        return self._code

    def _present(self) -> list[int]:
        return [worker.process for worker in self._workers if worker.process]

    def _start_due(self) -> None:
        for number, worker in enumerate(self._workers):
            if not (worker.process or self._is_stopping) and worker.due_at <= time.monotonic():
                self._start(number, worker)

    def _start(self, number: int, worker: _Worker) -> None:
        sys.stdout.flush()
        self._at_work[number] = 0
        # Signals are blocked until the child has its own handlers and the parent knows its pid.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        parent = os.getpid()
        process = os.fork()
        if process == 0:
            self._run_worker(number, parent)
        worker.process, worker.started_at = process, time.monotonic()
        if self._is_stopping:
            os.kill(process, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _run_worker(self, number: int, parent: int) -> None:
        def is_at_work() -> None:
            self._at_work[number] = 1

        for signal_number in _SIGNALS:
            signal.signal(signal_number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _do_and_exit(lambda: self._work(number, is_at_work), parent)

    def _wait(self) -> None:
        """Wait until a worker ends, or briefly if one has to be started later."""
        present = self._present()
        is_one_due = not self._is_stopping and len(present) < len(self._workers)
        if is_one_due:
            time.sleep(_LOOK_S)
        if present:
            process, status = os.waitpid(-1, os.WNOHANG if is_one_due else 0)
            if process in present:
                number = next(n for n, p in enumerate(self._workers) if p.process == process)
                self._note_end(number, os.waitstatus_to_exitcode(status))

    def _note_end(self, number: int, code: int) -> None:
        worker = self._workers[number]
        process, worker.process = worker.process, 0
        if self._is_stopping:
            return
        log.error("worker.ended", extra={"pid": process, "code": code})
        worker.failures = 0 if self._at_work[number] else worker.failures + 1
        self._at_work[number] = 0
        now = time.monotonic()
        if worker.failures:
            worker.due_at = now + min(_TOO_SOON_S * 2 ** (worker.failures - 1), _MAX_PAUSE_S)
        elif now - worker.started_at < _TOO_SOON_S:
            worker.due_at = now + _TOO_SOON_S
        if not any(self._at_work[:]) and all(worker.failures >= TRIES for worker in self._workers):
            log.error("supervisor.ended", extra={"tries": worker.failures, "code": code})
            self._code = 128 - code if code < 0 else code or 1
            self._stop()

    def _stop(self, *_: object) -> None:
        self._is_stopping = True
        for process in self._present():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)


def run_in_child(work: Callable[[], int]) -> int:
    """Run *work* in a child process and return its exit code, so that no threads remain here."""
    sys.stdout.flush()
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        _do_and_exit(work, parent)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _do_and_exit(work: Callable[[], int], parent: int) -> None:
    code = 1
    try:
        _end_with(parent)
        code = work()
    except Exception:
        log.exception("worker.failed")
    finally:
        sys.stdout.flush()
        os._exit(code)


def _end_with(parent: int) -> None:
    """Receive SIGTERM when the parent is killed; only Linux supports it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)
