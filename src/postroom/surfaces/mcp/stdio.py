"""The stdio transport: one JSON message per line, in and out."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import select
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from postroom.model.limits import TOO_DEEP, is_shallow, is_shallow_json


class Unreadable(Exception):
    """A line that is not a JSON-RPC message; `reply` is the response."""

    def __init__(self, code: int, message: str, request_id: object = None) -> None:
        super().__init__(message)
        known = request_id if _is_id(request_id) else None
        error = types.ErrorData(code=code, message=message)
        self.reply = types.JSONRPCError(jsonrpc="2.0", id=known, error=error)


class TooDeep(Unreadable):
    """A message that is nested too deeply to be looked at."""

    def __init__(self, request_id: object = None) -> None:
        super().__init__(types.INVALID_REQUEST, f"the message is {TOO_DEEP}", request_id)


def check_depth(line: bytes) -> None:
    """Check a message that the SDK will read. Raises TooDeep."""
    if not is_shallow_json(line):
        from postroom.surfaces.mcp.call_tool import END_BYTES, Ends

        # The message cannot be parsed, but the id of a request is near one end of the line.
        ends = Ends(line[:END_BYTES], line[-END_BYTES:])
        raise TooDeep(ends.members().get("id"))


def read_frame(line: bytes) -> types.JSONRPCMessage:
    """Read one line. Raises Unreadable."""
    try:
        data = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        check_depth(line)
        place = _PLACE.search(str(error))
        where = f" (at character {place[1]})" if place else ""
        problem = f"this line is not JSON{where}; send one JSON-RPC object per line"
        raise Unreadable(types.PARSE_ERROR, problem) from None
    if not isinstance(data, dict):
        raise Unreadable(types.INVALID_REQUEST, "send one JSON-RPC object at a time, no batches")
    if not is_shallow(data):
        raise TooDeep(data.get("id"))
    if "method" in data and "id" in data and not _is_id(data["id"]):
        raise Unreadable(types.INVALID_REQUEST, "id: must be a string or a whole number")
    is_call = data.get("method") == "tools/call" and "id" in data
    if is_call and (problem := _wrong_call(data.get("params"))):
        raise Unreadable(types.INVALID_PARAMS, problem, data.get("id"))
    try:
        return types.jsonrpc_message_adapter.validate_python(data, by_name=False)
    except ValidationError:
        problem = 'not a JSON-RPC message; a request has "jsonrpc": "2.0", "id" and "method"'
        raise Unreadable(types.INVALID_REQUEST, problem, data.get("id")) from None


_PLACE = re.compile(r"column (\d+)")


def _wrong_call(params: object) -> str:
    """What is wrong with the parameters of a call of a tool; empty if nothing is."""
    if not isinstance(params, dict):
        return "params: give an object with the name of a tool and its arguments"
    if not isinstance(params.get("name"), str):
        return "params.name: give the name of a tool; tools/list has them"
    if not isinstance(params.get("arguments", {}), dict) and params["arguments"] is not None:
        return "params.arguments: give an object with the arguments of the tool"
    return ""


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def write_frame(message: types.JSONRPCMessage) -> bytes:
    """One message as one line."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except PydanticSerializationError:
        known = getattr(message, "id", None)
        fault = Unreadable(types.INTERNAL_ERROR, "the result cannot be written as JSON", known)
        return write_frame(fault.reply)


DRAIN_S = 1.0
"""How long calls may still finish after the client has closed stdin."""

FLUSH_S = 0.3
"""How long the last answer may still take to be read."""

LEAVE_S = 0.5
"""How long the store may still take to close."""

_CHUNK_BYTES = 1 << 16

T = TypeVar("T")
Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_streams(most_bytes: int) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Take over stdin and stdout; a line over *most_bytes* is refused and skipped.

    When nobody reads stdout any more, what runs inside is cancelled.
    """
    wire_in, wire_out = _claim()
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage]()
    async with anyio.create_task_group() as tasks, incoming, outgoing:
        lines = read_lines(wire_in, wire_out, most_bytes)
        wire = _Wire(lines, wire_out, when_gone=tasks.cancel_scope.cancel)
        tasks.start_soon(wire.receive, to_server)
        tasks.start_soon(wire.send, from_server)
        yield incoming, outgoing
        outgoing.close()
        with anyio.move_on_after(FLUSH_S):
            await wire.is_flushed.wait()
        tasks.cancel_scope.cancel()


def _claim() -> tuple[int, int]:
    """Duplicate stdin and stdout; other writes to stdout go to stderr."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    return wire_in, wire_out


def read_lines(wire_in: int, wire_out: int, most_bytes: int) -> Iterator[bytes | None]:
    """The received lines, None for one that is too long, until stdin or stdout is closed."""
    ends = select.poll()
    ends.register(wire_in, select.POLLIN)
    # With no events requested, poll still reports that the reader has closed stdout.
    ends.register(wire_out, 0)
    line, is_too_long = bytearray(), False
    while wire_out not in dict(ends.poll()):
        chunk = _read(wire_in)
        for number, part in enumerate(chunk.split(b"\n")):
            if number:
                yield None if is_too_long else bytes(line)
                line, is_too_long = bytearray(), False
            line += part
            if len(line) > most_bytes:
                line, is_too_long = bytearray(), True
        if not chunk:
            break
    if line or is_too_long:
        yield None if is_too_long else bytes(line)


def _read(wire: int) -> bytes:
    try:
        return os.read(wire, _CHUNK_BYTES)
    except OSError:
        return b""


class _DaemonThread:
    """A daemon thread for calls that may block forever."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    async def do(self, job: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except Exception as error:  # noqa: BLE001 - whoever waits for the job gets it
                future.set_exception(error)


class _Wire:
    """Reads and writes lines, and tracks requests without a response."""

    def __init__(
        self, lines: Iterator[bytes | None], wire_out: int, when_gone: Callable[[], None]
    ) -> None:
        self.lines, self.wire_out, self.when_gone = lines, wire_out, when_gone
        self.is_flushed, self._all_answered = anyio.Event(), anyio.Event()
        self._unanswered: set[str | int] = set()
        self._reader, self._writer = _DaemonThread(), _DaemonThread()

    async def receive(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass every message to the server; at the end, wait for running calls."""
        async with to_server:
            while True:
                try:
                    message = await self._reader.do(self._next)
                except Unreadable as unreadable:
                    await self._write(unreadable.reply)
                    continue
                if message is None:
                    break
                self._expect(message)
                await to_server.send(SessionMessage(message))
            self._all_answered = anyio.Event()
            if self._unanswered:
                with anyio.move_on_after(DRAIN_S):
                    await self._all_answered.wait()

    def _next(self) -> types.JSONRPCMessage | None:
        for line in self.lines:
            if line is None:
                raise Unreadable(
                    types.INVALID_REQUEST, "this line exceeds the size limit of a call"
                )
            if line.strip():
                return read_frame(line)
        return None

    def _expect(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._unanswered.add(message.id)
        elif (
            isinstance(message, types.JSONRPCNotification)
            and message.method == "notifications/cancelled"
        ):
            # A request that the client cancels gets no response.
            self._forget((message.params or {}).get("requestId"))

    def _forget(self, request_id: object) -> None:
        if isinstance(request_id, (str, int)):
            self._unanswered.discard(request_id)
        if not self._unanswered:
            self._all_answered.set()

    async def send(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the messages of the server."""
        async with from_server:
            async for item in from_server:
                await self._write(item.message)
        self.is_flushed.set()

    async def _write(self, message: types.JSONRPCMessage) -> None:
        data = memoryview(write_frame(message))
        try:
            await self._writer.do(lambda: _write_all(self.wire_out, data))
        except OSError:
            self.when_gone()
        self._forget(getattr(message, "id", None))


def _write_all(wire: int, data: memoryview) -> None:
    while data:
        data = data[os.write(wire, data) :]


def exit_soon() -> None:
    """End the process soon, even if a thread is busy: uncommitted writes are rolled back."""

    def leave() -> None:
        time.sleep(LEAVE_S)
        os._exit(0)

    # Otherwise the collector runs once more at exit, for half a second.
    gc.freeze()
    Thread(target=leave, daemon=True).start()
