"""JSON-RPC as lines of bytes: read strictly, written compactly."""

from __future__ import annotations

import mcp_types as types
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json


class Unreadable(Exception):
    """A line that is no JSON-RPC message; `reply` is what to answer."""

    def __init__(self, code: int, message: str, request_id: object = None) -> None:
        super().__init__(message)
        known = request_id if _is_id(request_id) else None
        error = types.ErrorData(code=code, message=message)
        self.reply = types.JSONRPCError(jsonrpc="2.0", id=known, error=error)


def read_frame(line: bytes) -> types.JSONRPCMessage:
    """Read one line. Raises Unreadable."""
    try:
        data = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise Unreadable(types.PARSE_ERROR, f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Unreadable(types.INVALID_REQUEST, "send one JSON-RPC object per line, no batches")
    if "method" in data and "id" in data and not _is_id(data["id"]):
        raise Unreadable(types.INVALID_REQUEST, "id: must be a string or a whole number")
    try:
        return types.jsonrpc_message_adapter.validate_python(data, by_name=False)
    except ValidationError:
        problem = "not a JSON-RPC 2.0 message"
        raise Unreadable(types.INVALID_REQUEST, problem, data.get("id")) from None


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def write_frame(message: types.JSONRPCMessage) -> bytes:
    """One message as one line."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except PydanticSerializationError:
        known = getattr(message, "id", None)
        fault = Unreadable(types.INTERNAL_ERROR, "the answer cannot be written as JSON", known)
        return write_frame(fault.reply)
