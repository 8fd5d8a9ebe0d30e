"""Parsing of mail and of attached files; what is large runs in a process with limits."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

from postroom.blocking import Bounds, WorkFailed, in_process, in_thread
from postroom.errors import Unavailable
from postroom.extras import require
from postroom.model.limits import MB, Limits
from postroom.model.values import dataclass

if TYPE_CHECKING:
    from postroom.mail.message import ParsedMessage
    from postroom.mail.text_extraction.extract import ExtractedText

SMALL_BYTES = 256 * 1024
"""Up to this size parsing takes milliseconds, whatever the mail contains."""

MEMORY_BYTES, CPU_S = 512 * 1024 * 1024, 10
"""Limits of the worker: memory in total, CPU time for each mail."""

PARSE_FAILED = "parse_failed"
"""The prefix of the defect of a mail whose body could not be parsed."""

_LENGTH_BYTES = 8

_AT_ONCE = 2
_QUEUE_S = 30.0
_ANSWER_BYTES = 16 * MB
"""Limits of reading attached files."""


@dataclass(slots=True)
class Parser:
    """Parses small mails in a thread and large mails in a worker process, started on first use.

    If the worker exceeds its limits, the mail has its headers and a defect, but no body; its raw
    bytes are stored as always. The limit is CPU time; `timeout_s` ends a worker that uses none, and
    is long, so that a busy machine loses no text.
    """

    limits: Limits
    timeout_s: float = 120
    small_bytes: int = SMALL_BYTES
    _worker: asyncio.subprocess.Process | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def parse(self, raws: Sequence[bytes]) -> list[ParsedMessage]:
        """Parse each mail."""
        small = [raw for raw in raws if len(raw) <= self.small_bytes]
        parsed = iter(await in_thread(_parse_all, small, self.limits))
        return [
            next(parsed) if len(raw) <= self.small_bytes else await self._parse_in_worker(raw)
            for raw in raws
        ]

    async def close(self) -> None:
        """Stop the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

    async def _parse_in_worker(self, raw: bytes) -> ParsedMessage:
        async with self._lock:
            try:
                return await asyncio.wait_for(self._request(raw), self.timeout_s)
            except (TimeoutError, OSError, EOFError, asyncio.IncompleteReadError):
                await self.close()
                from postroom.mail.parse import read_headers

                defect = f"{PARSE_FAILED}: the body took too long or too much memory to read"
                return read_headers(raw, self.limits, defect)
            except BaseException:
                await self.close()
                raise

    async def _request(self, raw: bytes) -> ParsedMessage:
        worker = self._worker
        if worker is None or worker.returncode is not None:
            worker = await self._start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        request = pickle.dumps((raw, self.limits))
        worker.stdin.write(len(request).to_bytes(_LENGTH_BYTES) + request)
        await worker.stdin.drain()
        size = int.from_bytes(await worker.stdout.readexactly(_LENGTH_BYTES))
        parsed: ParsedMessage = pickle.loads(await worker.stdout.readexactly(size))  # noqa: S301
        return parsed

    async def _start(self) -> asyncio.subprocess.Process:
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from postroom.pipeline.parse_worker import run_worker; run_worker()",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        return self._worker


def _parse_all(raws: Sequence[bytes], limits: Limits) -> list[ParsedMessage]:
    """Parse mails; the parser is imported on first use, so that starting a server stays fast."""
    from postroom.mail.parse import parse_message

    return [parse_message(raw, limits) for raw in raws]


def set_limits(*, memory_bytes: int = MEMORY_BYTES, cpu_s: int = CPU_S) -> None:
    """Limit the memory of this process, and its CPU time from now on."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(used.ru_utime + used.ru_stime) + 1 + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard_limit))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def run_worker() -> None:
    """The worker process: parse mails from stdin until it is closed, each within the limits."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while head := stdin.read(_LENGTH_BYTES):
        set_limits()
        raw, limits = pickle.loads(stdin.read(int.from_bytes(head)))  # noqa: S301
        response = pickle.dumps(_parse_all([raw], limits)[0])
        stdout.write(len(response).to_bytes(_LENGTH_BYTES) + response)
        stdout.flush()


async def extract_text(data: bytes, max_chars: int) -> ExtractedText:
    """The text of a PDF, Office or RTF file, and one character more if there is more.

    Raises:
        WorkFailed: it cannot be read within the limits.
        FeatureDisabled: it is a PDF, and the package that reads them is not installed.
    """
    # Imported on first use, as a start does not need it.
    from postroom.mail.text_extraction import extract

    kind = extract.file_kind(data)
    if kind is None:
        raise WorkFailed("it is not a PDF, Office or RTF file")
    if kind == extract.PDF:
        require("pdf")
    modules, bounds = extract.modules_for(kind), Bounds(output_bytes=_ANSWER_BYTES)
    work = extract.extract_as_json
    return extract.from_json(await in_process(work, data, max_chars, bounds, imports=modules))


@dataclass(frozen=True, slots=True)
class TextExtractor:
    """Reads files for all callers of this process; each takes a process and its memory."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    queue_s: float = _QUEUE_S

    async def read(self, data: bytes, max_chars: int) -> ExtractedText:
        """`extract_text` when there is capacity. Raises WorkFailed, Unavailable."""
        try:
            async with asyncio.timeout(self.queue_s):
                await self.slots.acquire()
        except TimeoutError:
            raise Unavailable(
                "the server is reading other attachments; try again", retry_after=5
            ) from None
        try:
            return await extract_text(data, max_chars)
        finally:
            self.slots.release()
