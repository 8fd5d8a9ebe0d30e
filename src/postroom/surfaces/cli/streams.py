"""Standard output and standard error: bytes, and JSON as every surface says it."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO


def write_json(value: Any, stream: TextIO | None = None) -> None:
    """Write compact JSON in UTF-8, whatever the terminal is set to."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    write_bytes(line.encode("utf-8", "replace") + b"\n", stream)


def write_bytes(content: bytes, stream: TextIO | None = None) -> None:
    """Write bytes as they are, to standard output if nothing else is named."""
    stream = stream or sys.stdout
    stream.flush()
    stream.buffer.write(content)
    stream.buffer.flush()
