"""The commands and settings with which MCP clients and programs connect, for people to copy."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY_PLACEHOLDER = "YOUR_KEY"
_KEY = "POSTROOM_KEY"
_LIST = re.compile(r"\[\n[^\[\]{}]*\]")
_FIRST_SEARCH = "/v1/search/messages?q=invoice"


def stdio_server(data_dir: Path) -> dict[str, Any]:
    """The command with which an MCP client starts `postroom mcp`."""
    started = Path(os.path.abspath(sys.argv[0]))
    arguments = ["mcp", "--toolsets", "agent", "--data", str(data_dir.absolute())]
    if started.suffix == ".py":
        return {"command": sys.executable, "args": ["-m", "postroom", *arguments]}
    return {"command": str(started), "args": arguments}


def http_server(url: str, key: str) -> dict[str, Any]:
    """The endpoint of a server for an MCP client; without a key if none is needed."""
    server: dict[str, Any] = {"type": "http", "url": f"{url}/mcp"}
    return server | ({"headers": {"Authorization": f"Bearer {key}"}} if key else {})


def mcp_servers(server: Mapping[str, Any], *, indent: int | None = None) -> str:
    """The settings of most MCP clients, in JSON."""
    return _json({"mcpServers": {"postroom": server}}, indent)


def _json(value: object, indent: int | None = 2) -> str:
    """JSON for people: a list of texts is on one line."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _LIST.sub(_on_one_line, text)


def _on_one_line(found: re.Match[str]) -> str:
    return re.sub(r",\n\s*", ", ", re.sub(r"\[\n\s*|\n\s*\]", lambda end: end[0].strip(), found[0]))


def curl(url: str, key: str) -> str:
    """A first request over REST."""
    header = f'-H "Authorization: Bearer {key}" ' if key else ""
    return f'curl -s {header}"{url}{_FIRST_SEARCH}"'


@dataclass(frozen=True, slots=True)
class Lines:
    """Settings to copy: where to put them, and an optional remark."""

    title: str
    text: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """A program that connects, and its ways to connect."""

    id: str
    title: str
    lines: tuple[Lines, ...]
    remark: str = ""
    uses_mcp: bool = True


def clients_of(url: str, key: str, stdio: Mapping[str, Any] | None) -> tuple[Client, ...]:
    """The known clients; without *stdio*, only over HTTP."""
    http = http_server(url, key)
    local = None if stdio is None else {**stdio, "env": {_KEY: key}}
    return (
        _claude_desktop(http, local),
        _claude_code(url, key, stdio),
        _cursor(http, local),
        _vs_code(http, local),
        _codex(url, key, stdio),
        _chatgpt(url, key),
        _langchain(http),
        _over_rest("curl", "curl", "In a terminal", curl(url, key)),
        _over_rest("python", "Python", "With the standard library", _python(url, key)),
    )


def _over_rest(client_id: str, title: str, where: str, text: str) -> Client:
    return Client(client_id, title, (Lines(where, text),), uses_mcp=False)


def _locally(local: Mapping[str, Any] | None, text: str | None = None) -> tuple[Lines, ...]:
    """The settings with which a client on this machine starts Postroom itself."""
    if local is None:
        return ()
    words = "The client starts Postroom itself, on the same machine and data."
    return (Lines("On this machine (stdio)", text or mcp_servers(local, indent=2), words),)


def _remotely(text: str, remark: str = "") -> Lines:
    return Lines("Over HTTP", text, remark)


def _with_sign_in(text: str) -> Lines:
    words = "The client opens a page of Postroom on which you allow access; it needs no key."
    return Lines("Over HTTP, with sign-in", text, words)


def _claude_desktop(http: Mapping[str, Any], local: Mapping[str, Any] | None) -> Client:
    header = f"Authorization:{http['headers']['Authorization']}"
    through = {"command": "npx", "args": ["-y", "mcp-remote", http["url"], "--header", header]}
    return Client(
        "claude-desktop",
        "Claude Desktop",
        (
            *_locally(local),
            _with_sign_in(http["url"]),
            _remotely(mcp_servers(through, indent=2), "Needs Node.js, for the bridge mcp-remote."),
        ),
        "Settings → Developer → Edit Config opens claude_desktop_config.json. Restart it after the "
        "change. Settings → Connectors → Add custom connector takes an address to sign in at.",
    )


def _claude_code(url: str, key: str, stdio: Mapping[str, Any] | None) -> Client:
    started = shlex.join([stdio["command"], *stdio["args"]]) if stdio else ""
    return Client(
        "claude-code",
        "Claude Code",
        (
            *_locally(stdio, f"claude mcp add postroom --env {_KEY}={key} -- {started}"),
            _with_sign_in(f"claude mcp add --transport http postroom {url}/mcp"),
            _remotely(
                f"claude mcp add --transport http postroom {url}/mcp "
                f'--header "Authorization: Bearer {key}"'
            ),
        ),
        "In a terminal. Then /mcp in Claude Code shows the tools.",
    )


def _cursor(http: Mapping[str, Any], local: Mapping[str, Any] | None) -> Client:
    shown = {name: value for name, value in http.items() if name != "type"}
    return Client(
        "cursor",
        "Cursor",
        (
            *_locally(local),
            _with_sign_in(mcp_servers({"url": http["url"]}, indent=2)),
            _remotely(mcp_servers(shown, indent=2)),
        ),
        "In ~/.cursor/mcp.json, or .cursor/mcp.json of a project.",
    )


def _vs_code(http: Mapping[str, Any], local: Mapping[str, Any] | None) -> Client:
    def servers(server: Mapping[str, Any]) -> str:
        return _json({"servers": {"postroom": server}})

    started = _locally(local, servers({"type": "stdio", **local})) if local else ()
    return Client(
        "vs-code",
        "VS Code",
        (
            *started,
            _with_sign_in(servers({"type": "http", "url": http["url"]})),
            _remotely(servers(http)),
        ),
        "In .vscode/mcp.json, or with the command “MCP: Open User Configuration”.",
    )


def _codex(url: str, key: str, stdio: Mapping[str, Any] | None) -> Client:
    # A string in JSON is one in TOML as well.
    command = json.dumps(stdio["command"]) if stdio else ""
    arguments = json.dumps(stdio["args"], ensure_ascii=False) if stdio else ""
    started = (
        f"[mcp_servers.postroom]\ncommand = {command}\nargs = {arguments}\n"
        f'env = {{ {_KEY} = "{key}" }}'
    )
    return Client(
        "codex",
        "Codex",
        (
            *_locally(stdio, started),
            _remotely(
                f'[mcp_servers.postroom]\nurl = "{url}/mcp"\nbearer_token_env_var = "{_KEY}"',
                f"It reads the key from the environment: export {_KEY}={key}",
            ),
        ),
        "In ~/.codex/config.toml.",
    )


def _chatgpt(url: str, key: str) -> Client:
    tool = {
        "type": "mcp",
        "server_label": "postroom",
        "server_url": f"{url}/mcp",
        "authorization": key,
        "require_approval": "never",
    }
    return Client(
        "chatgpt",
        "ChatGPT",
        (
            Lines(
                "In ChatGPT",
                f"{url}/mcp",
                "Settings → Apps → Advanced settings → Developer mode, then Create: paste this "
                "URL and choose OAuth. It opens a page of Postroom on which you allow access.",
            ),
            Lines("In the Responses API of OpenAI, as a tool", json.dumps(tool, indent=2)),
        ),
        "It connects from the servers of OpenAI, so Postroom needs a public https address "
        "(POSTROOM_PUBLIC_URL).",
    )


def _langchain(http: Mapping[str, Any]) -> Client:
    server = {"transport": "streamable_http", "url": http["url"], "headers": http["headers"]}
    text = (
        "from langchain_mcp_adapters.client import MultiServerMCPClient\n\n"
        f"client = MultiServerMCPClient({json.dumps({'postroom': server}, indent=4)})\n"
        "tools = await client.get_tools()"
    )
    return Client("langchain", "LangChain", (Lines("With langchain-mcp-adapters", text),))


def _python(url: str, key: str) -> str:
    return (
        "import json\nfrom urllib.request import Request, urlopen\n\n"
        f'headers = {{"Authorization": "Bearer {key}"}}\n'
        f'request = Request("{url}{_FIRST_SEARCH}", headers=headers)\n'
        'for mail in json.load(urlopen(request))["results"]:\n'
        '    print(mail["from_address"], mail["subject"])'
    )
