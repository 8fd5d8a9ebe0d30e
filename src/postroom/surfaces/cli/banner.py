"""What `serve` says when it listens: where it is, the key, and lines to paste."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from postroom import __version__

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def base_url(host: str, port: int) -> str:
    """How a program on this machine reaches the server."""
    name = _ANYWHERE.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def mcp_command(data_dir: Path) -> dict[str, object]:
    """The command with which an MCP client starts us, wherever the client is."""
    started = Path(os.path.abspath(sys.argv[0]))
    arguments = ["mcp", "--data", str(data_dir.absolute())]
    if started.suffix == ".py":
        return {"command": sys.executable, "args": ["-m", "postroom", *arguments]}
    return {"command": str(started), "args": arguments}


@dataclass(frozen=True, slots=True)
class KeyWords:
    """The key as the banner tells it: in a sentence, and in lines to paste."""

    said: str
    pasted: str | None


def key_words(key: str | None, *, is_set: bool, needs_key: bool) -> KeyWords:
    """What to say of the owner's key; *key* is None if it must not or cannot be shown."""
    if not needs_key:
        return KeyWords("none is needed on this machine (--no-auth)", None)
    if key is not None:
        return KeyWords(key, key)
    if is_set:
        return KeyWords("the one that is set as POSTROOM_API_KEY", "$POSTROOM_API_KEY")
    return KeyWords("the one you were shown before; `postroom key reset` makes a new one", "$KEY")


def smtp_words(wanted: str | None, port: int | None) -> str:
    """Where mail comes in."""
    if wanted is None:
        return "not over SMTP; --smtp 127.0.0.1:8725 turns it on"
    host, _, number = wanted.rpartition(":")
    if port is None:
        return f"not over SMTP: port {number} is taken; choose another with --smtp"
    return f"smtp://{host}:{port}"


def banner(url: str, data_dir: Path, key: KeyWords, smtp: str, *, is_in_folder: bool = True) -> str:
    """The whole of it.

    What a client starts over stdio finds the house only if all of it *is in the folder*: a
    database and a bucket have addresses and passwords, which belong in no line to paste.
    """
    over_http: dict[str, object] = {"type": "http", "url": f"{url}/mcp"}
    header = ""
    if key.pasted is not None:
        header = f'-H "Authorization: Bearer {key.pasted}" '
        over_http["headers"] = {"Authorization": f"Bearer {key.pasted}"}
    return "\n".join(
        [
            f"Postroom {__version__} is listening on {url}",
            "",
            f"  data      {data_dir.absolute()}",
            f"  API docs  {url}/docs",
            f"  mail in   {smtp}",
            f"  key       {key.said}",
            f'  try it    curl -s {header}"{url}/v1/search/messages?q=invoice"',
            "",
            *(_over_stdio(data_dir) if is_in_folder else ("  Add it to an MCP client over HTTP:",)),
            f"    {_client(over_http)}",
            "",
            "  Stop it with Ctrl-C.",
        ]
    )


def _over_stdio(data_dir: Path) -> tuple[str, ...]:
    return (
        "  Add it to an MCP client, over stdio:",
        f"    {_client(mcp_command(data_dir))}",
        "  or over HTTP:",
    )


def _client(server: dict[str, object]) -> str:
    return json.dumps({"mcpServers": {"postroom": server}}, ensure_ascii=False)
