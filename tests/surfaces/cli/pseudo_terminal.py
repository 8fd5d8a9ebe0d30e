"""A pseudo-terminal in which a command runs, with its output and scripted input."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path
from threading import Timer

from tests.servers.fork_server import shared_fork_server
from tests.servers.postroom import environment

_PATIENCE_S = 60
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(
    data: Path,
    *words: str,
    code: int = 0,
    columns: int = 120,
    rows: int = 40,
    types: dict[str, bytes] | None = None,
    **env: str,
) -> str:
    """The output on a terminal. *types* maps prompts to the input that is typed once for each."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {"TERM": "xterm-256color", "PAGER": "cat", **env}
    env = {k: v for k, v in environment(data, env).items() if k not in ("COLUMNS", "LINES")}
    process = shared_fork_server().start(list(words), env, theirs, theirs, theirs)
    os.close(theirs)  # so that the output ends when the command exits
    patience = Timer(_PATIENCE_S, process.kill)
    patience.start()
    seen, left = bytearray(), dict(types or {})
    while chunk := _read(ours):
        seen += chunk
        for shown in [shown for shown in left if shown.encode() in seen]:
            os.write(ours, left.pop(shown))
    ended = process.wait(_PATIENCE_S)
    patience.cancel()
    os.close(ours)
    assert code == ended, seen.decode()
    return seen.decode()


def lines_on_a_terminal(data: Path, *words: str, **options: object) -> list[str]:
    """The displayed lines, without colours."""
    seen = _COLOURS.sub("", on_a_terminal(data, *words, **options))  # type: ignore[arg-type]
    return seen.replace("\r\n", "\n").rstrip("\n").split("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # EIO: no process writes any more
        return b""
