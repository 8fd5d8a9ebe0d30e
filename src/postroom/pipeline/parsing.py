"""Parsing that cannot take the house down: large mail is read in a process that can be killed."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from postroom.blocking import in_thread
from postroom.mail.message import ParsedMessage
from postroom.model.limits import Limits

SMALL_BYTES = 256 * 1024
"""Up to this size parsing takes milliseconds whatever the mail contains."""

MEMORY_BYTES, CPU_S = 512 * 1024 * 1024, 10
"""What the worker may take: of memory in all, of time for each mail."""

PARSE_FAILED = "parse_failed"
"""What a defect begins with that says so."""

_SIZE_BYTES = 8


@dataclass(slots=True)
class Parser:
    """Parses small mails in a thread and large ones in one worker process, made when needed.

    A worker that takes too long, or dies, costs its mail the body: the headers and a defect stay,
    and the raw bytes are kept anyway.
    """

    limits: Limits
    patience_s: float = 20
    small_bytes: int = SMALL_BYTES
    _worker: asyncio.subprocess.Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def parse(self, raws: Sequence[bytes]) -> list[ParsedMessage]:
        """Parse each mail."""
        small = [raw for raw in raws if len(raw) <= self.small_bytes]
        parsed = iter(await in_thread(_parse_all, small, self.limits))
        return [
            next(parsed) if len(raw) <= self.small_bytes else await self._parse_apart(raw)
            for raw in raws
        ]

    async def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

    async def _parse_apart(self, raw: bytes) -> ParsedMessage:
        async with self._turn:
            try:
                return await asyncio.wait_for(self._ask(raw), self.patience_s)
            except (TimeoutError, OSError, EOFError, asyncio.IncompleteReadError):
                await self.close()
                return _headers_only(raw, self.limits)
            except BaseException:
                await self.close()
                raise

    async def _ask(self, raw: bytes) -> ParsedMessage:
        worker = self._worker
        if worker is None or worker.returncode is not None:
            worker = await self._start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        job = pickle.dumps((raw, self.limits))
        worker.stdin.write(len(job).to_bytes(_SIZE_BYTES) + job)
        await worker.stdin.drain()
        size = int.from_bytes(await worker.stdout.readexactly(_SIZE_BYTES))
        parsed: ParsedMessage = pickle.loads(await worker.stdout.readexactly(size))  # noqa: S301
        return parsed

    async def _start(self) -> asyncio.subprocess.Process:
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from postroom.pipeline.parsing import work; work()",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        return self._worker


def _parse_all(raws: Sequence[bytes], limits: Limits) -> list[ParsedMessage]:
    """The parser is imported when the first mail comes: a start should not pay for it."""
    from postroom.mail.parse import parse_message

    return [parse_message(raw, limits) for raw in raws]


def _headers_only(raw: bytes, limits: Limits) -> ParsedMessage:
    from postroom.mail.parse import read_headers

    defect = f"{PARSE_FAILED}: the body took too long or too much memory to read"
    return read_headers(raw, limits, defect)


def bound(*, memory_bytes: int = MEMORY_BYTES, cpu_s: int = CPU_S) -> None:
    """Let this process have so much memory in all, and so much time from now on."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(used.ru_utime + used.ru_stime) + 1 + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (until, most))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def work() -> None:
    """The worker: parse what comes in on stdin until it ends, each mail within bounds."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while head := stdin.read(_SIZE_BYTES):
        bound()
        raw, limits = pickle.loads(stdin.read(int.from_bytes(head)))  # noqa: S301
        answer = pickle.dumps(_parse_all([raw], limits)[0])
        stdout.write(len(answer).to_bytes(_SIZE_BYTES) + answer)
        stdout.flush()
