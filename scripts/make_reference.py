"""Write docs/reference/api/ from the tables of routes and tools: make reference.

    python scripts/make_reference.py            writes the pages
    python scripts/make_reference.py --check    fails if they are not current

Each operation has its arguments, what it returns, and the same call with curl, in Python and over
MCP. The values of a call are the examples of its arguments; `tests/test_reference.py` runs all of
them against a server.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args
from urllib.parse import quote, urlencode

from postroom.calls.request import argument_fields
from postroom.model.event import EventStream
from postroom.model.key import Scope
from postroom.model.mail.message import Download
from postroom.model.page import is_page
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets import TOOLSETS, choose_tools
from postroom.surfaces.rest.openapi_inputs import argument_schema
from postroom.surfaces.rest.routes import ROUTES, Route
from postroom.surfaces.schema import Schema, result_schema

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "api"
URL = "http://127.0.0.1:8700"
WIDTH = 96

PAGES = {
    "inboxes": ("Inboxes", "inboxes policy identities mailboxes labels"),
    "messages": ("Messages", "messages search"),
    "threads": ("Threads, attachments and inbound mail", "threads attachments inbound ids"),
    "outgoing": ("Drafts and the outbox", "drafts outbox"),
    "rules": ("Rules and plans", "rules plans"),
    "memories": ("Memories", "memories"),
    "events": ("Events and webhooks", "events webhooks"),
    "administration": ("Accounts, keys and the audit log", "accounts capabilities keys audit"),
}
"""The pages: the title, and the first segments of the paths that belong to it."""

SHOWN = {
    "create_inbox": "name username",
    "delete_inbox": "force",
    "set_policy": "approval recipients",
    "list_messages": "inbox_id q",
    "send_message": "body_text inbox_id",
    "wait_for_message": "inbox_id extract timeout_s",
    "update_message": "add_labels add_flags",
    "update_messages": "message_ids add_labels",
    "search_messages": "q mode after_date",
    "list_threads": "inbox_id",
    "list_attachments": "message_id",
    "get_attachment_content": "format",
    "list_mailboxes": "inbox_id",
    "create_draft": "to subject body_text inbox_id",
    "update_draft": "body_text",
    "send_draft": "idempotency_key",
    "list_outbox": "status",
    "reject_message": "note",
    "list_events": "types sort",
    "stream_events": "types since",
    "create_webhook": "types",
    "update_webhook": "enabled",
    "memory_add": "tags",
    "memory_list": "tags",
    "memory_update": "text",
    "create_rule": "dry_run",
    "update_rule": "enabled",
    "list_audit": "action",
    "create_alias": "name inbox_id",
    "update_identity": "name",
    "add_account": "host smtp_host password",
    "log_in_account": "password",
    "create_key": "scopes inboxes",
    "update_key": "expires_at",
}
"""The optional arguments in the sample call of an operation."""

NEAREST_TOOLS = {
    "search_messages": "find_mail",
    "list_messages": "find_mail",
    "get_message": "read_mail",
    "get_thread": "read_mail",
    "get_attachment_content": "read_mail",
    "send_message": "send_mail",
    "reply_to_message": "reply_mail",
    "forward_message": "forward_mail",
    "update_messages": "change_mail",
    "wait_for_message": "wait_for_mail",
    "list_mailboxes": "list_mailboxes",
    "list_labels": "list_mailboxes",
    "list_outbox": "list_outgoing",
    "list_drafts": "list_outgoing",
    "memory_add": "remember",
    "memory_search": "recall",
    "memory_delete": "forget",
    "create_rule": "make_rule",
}
"""Tools of the toolset `agent` that do the same in fewer words."""


def pages() -> dict[str, str]:
    """Every page by its name."""
    segments = {one: name for name, (_, words) in PAGES.items() for one in words.split()}
    routes: dict[str, list[Route]] = {name: [] for name in PAGES}
    for route in ROUTES:
        routes[segments[route.path.split("/")[2]]].append(route)
    return {"README": index(routes), **{name: page(name, rows) for name, rows in routes.items()}}


def index(routes: Mapping[str, list[Route]]) -> str:
    """The list of all operations."""
    parts = [INDEX]
    for name, rows in routes.items():
        lines = [
            f"| [`{r.operation.name}`]({name}.md#{r.operation.name}) | {_place(r)} | {_first(r)} |"
            for r in rows
        ]
        head = "| operation | REST | what it does |\n|---|---|---|\n"
        parts.append(f"## {PAGES[name][0]}\n\n{head}" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


INDEX = f"""# Every operation

An operation has one name. It is the name of the method of the Python client, of the `operationId`
in the [OpenAPI document](../rest.md), and, where there is one, of the MCP tool. Arguments and
results are the same everywhere. These pages are made from the tables that the server runs on.

The samples use three things:

- curl: `KEY` is your key, and the server is at <{URL}>. `APPROVER_KEY` is a key with the scope
  `approve`, which can have no other scope.
- Python: `client` is a [`Postroom`](../../tutorials/quickstart.md). The argument `from` is written
  `from_`, because `from` is a keyword.
- MCP: the arguments of a `tools/call` request. Operations without a tool are for programs and
  people, not for agents.

Ids such as `msg_4h8t2w` are examples: use your own."""


def page(name: str, routes: list[Route]) -> str:
    """One page: its operations in the order of the table."""
    title = PAGES[name][0]
    head = f"# {title}: operations\n\nEvery operation on {title.lower()}, with its arguments, what "
    head += "it returns, and how to call it. [All operations](README.md)."
    return "\n\n".join([head, *map(section, routes)]) + "\n"


def section(route: Route) -> str:
    """An operation."""
    operation = route.operation
    scope = "no key" if route.posted else f"scope `{operation.scope}`"
    parts = [f"## {operation.name}", operation.description]
    parts.append(f"{_place(route)} · {scope} · {_statuses(route)}")
    parts += [*_arguments(route), f"**Returns** {_returns(operation.result)}"]
    if route.posted:
        parts.append("Called by the provider: see [inbound webhooks](../../how-to/inbound.md).")
        return "\n\n".join(parts)
    parts += [f"```sh\n{curl(route)}\n```", f"```python\n{python(route)}\n```", *mcp(route)]
    return "\n\n".join(parts)


def _place(route: Route) -> str:
    return f"`{route.method} {route.path}{f'?{route.when}=' if route.when else ''}`"


def _first(route: Route) -> str:
    return route.operation.description.partition(". ")[0].removesuffix(".").replace("|", "\\|")


def _statuses(route: Route) -> str:
    codes = sorted({*route.statuses.values()} or {route.status}, reverse=True)
    return "answers " + " or ".join(map(str, codes))


def _arguments(route: Route) -> list[str]:
    rows = []
    for name, info in argument_fields(route.operation.request).items():
        place = route.locations[name]
        if place in ("raw", "headers"):
            continue
        schema = argument_schema(info)
        kind = _kind(schema) + (", required" if info.is_required() else "")
        told = [info.description or "", _default(schema), _limits(schema)]
        rows.append(f"| `{name}` | {kind} | {' '.join(filter(None, told))} |".replace("\n", " "))
    if route.raw:
        rows.append("| the body | bytes, required | The mail as it came, `message/rfc822`. |")
    return ["| argument | type | |\n|---|---|---|\n" + "\n".join(rows)] if rows else []


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema['items'])}"
    words = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false"}
    return words.get(kind, "object")


def _default(schema: Schema) -> str:
    if schema.get("default") in (None, False, True):
        return ""
    return f"Default `{json.loads(json.dumps(schema['default']))}`."


def _limits(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{low} to {high:,}." if low is not None and high is not None and high < 2**31 else ""


def _returns(result: Any) -> str:
    if result is type(None):
        return "nothing."
    if result is Download:
        return "the bytes."
    if result is EventStream:
        return "[events](../events.md) as they happen."
    if isinstance(result, UnionType):
        return " or ".join(_returns(kind).removesuffix(".") for kind in get_args(result)) + "."
    if is_page(result):
        return f"a [page](../rest.md#pages) of objects with {_fields(get_args(result)[0])}."
    return f"{_fields(result)}."


def _fields(kind: Any) -> str:
    return ", ".join(f"`{name}`" for name in result_schema(kind, lambda _: {})["properties"])


def example(route: Route) -> dict[str, Any]:
    """The arguments of the sample call."""
    infos = argument_fields(route.operation.request)
    names = [n for n, info in infos.items() if info.is_required() and n != route.raw]
    names += SHOWN.get(route.operation.name, "").split()
    return {name: (infos[name].examples or [None])[0] for name in names}


def curl(route: Route) -> str:
    """The call as a shell command."""
    given = example(route)
    path = re.sub(r"{(\w+)}", lambda found: quote(str(given[found[1]]), safe=""), route.path)
    query = urlencode({n: given[n] for n in route.at("query") if n in given}, doseq=True)
    body = {n: given[n] for n in route.at("body") if n in given}
    key = "APPROVER_KEY" if route.operation.scope is Scope.APPROVE else "KEY"
    words = ["curl", "-sN" if route.operation.result is EventStream else "-s"]
    words += [] if route.method == "GET" else ["-X", route.method]
    parts = [" ".join(words), f'-H "Authorization: Bearer ${key}"']
    if body:
        parts += ['-H "Content-Type: application/json"', f"-d {_quoted(json.dumps(body))}"]
    if route.raw:
        parts += ['-H "Content-Type: message/rfc822"', "--data-binary @one.eml"]
    return _wrapped([*parts, f'"{URL}{path}{f"?{query}" if query else ""}"'])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _wrapped(parts: list[str]) -> str:
    """The words of a command, on as many lines as they need."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 > WIDTH:
            lines.append(part)
        else:
            lines[-1] += " " + part
    return " \\\n  ".join(lines)


def python(route: Route) -> str:
    """The call in Python."""
    given = [f"{_safe(name)}={_literal(value)}" for name, value in example(route).items()]
    if route.raw:
        given.append('raw=open("one.eml", "rb").read()')
    made = f"client.{route.operation.name}({', '.join(given)})"
    if len(made) > WIDTH:
        inner = "".join(f"    {one},\n" for one in given)
        made = f"client.{route.operation.name}(\n{inner})"
    if route.operation.result is EventStream:
        return f"for event in {made}:\n    print(event.type, event.message_id)\n    break"
    return made


def _safe(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _literal(value: Any) -> str:
    """A value as source, with double quotes where it can be."""
    if isinstance(value, str) and '"' not in value:
        return json.dumps(value, ensure_ascii=False)
    return re.sub(r"'([^'\"]*)'", r'"\1"', repr(value))


def mcp(route: Route) -> Iterator[str]:
    """The call of the tool that is bound to the operation, and the one for daily work."""
    name = route.operation.name
    nearest = NEAREST_TOOLS.get(name)
    hint = f"In the toolset [`agent`](../agent.md): `{nearest}`." if nearest else ""
    tools = [(s, tool) for s in TOOLSETS for tool in choose_tools([s]) if tool.name == name]
    if not tools:
        yield hint or "No MCP tool."
        return
    sets = " and ".join(f"`{toolset}`" for toolset, _ in tools)
    yield f"MCP tool `{name}` (toolset {sets}). {hint}".strip()
    yield f"```json\n{json.dumps(_call(tools[0][1], route), ensure_ascii=False)}\n```"


def _call(tool: Tool, route: Route) -> Schema:
    """The parameters of a `tools/call` request."""
    words = {ours: theirs for theirs, ours in tool.rename.items()}
    given = {words.get(n, n): v for n, v in example(route).items() if n not in tool.pin}
    return {"name": tool.name, "arguments": given}


def main(*, check: bool) -> int:
    """Write the pages, or say which are not current."""
    stale = [n for n, text in pages().items() if _read(FOLDER / f"{n}.md") != text]
    if not check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in pages().items():
            (FOLDER / f"{name}.md").write_text(text, "utf-8")
        return 0
    if stale:
        print(f"not current: {', '.join(stale)}; run `make reference`", file=sys.stderr)
    return 1 if stale else 0


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
