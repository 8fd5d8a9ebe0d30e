"""Clients of each surface: REST, MCP over HTTP, MCP over stdio, and the command line."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import quote

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.servers.fork_server import ForkServer, shared_fork_server
from tests.servers.postroom import Running, forked_command

TIMEOUT_S = 120
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""These servers use plain HTTP: a client need not load the certificates of the system."""

PATHS = {
    "create_inbox": ("POST", "/v1/inboxes"),
    "list_inboxes": ("GET", "/v1/inboxes"),
    "list_messages": ("GET", "/v1/messages"),
    "search_messages": ("GET", "/v1/search/messages"),
    "get_message": ("GET", "/v1/messages/{message_id}"),
    "update_message": ("PATCH", "/v1/messages/{message_id}"),
    "apply_label": ("POST", "/v1/messages/labels"),
    "move_message": ("POST", "/v1/messages/{message_id}/move"),
    "list_threads": ("GET", "/v1/threads"),
    "get_thread": ("GET", "/v1/threads/{thread_id}"),
    "list_attachments": ("GET", "/v1/attachments"),
    "get_attachment_content": ("GET", "/v1/attachments/{attachment_id}/content"),
    "send_message": ("POST", "/v1/messages"),
    "reply_to_message": ("POST", "/v1/messages/{message_id}/reply"),
    "memory_add": ("POST", "/v1/memories"),
    "memory_get": ("GET", "/v1/memories/{key}"),
    "memory_update": ("PATCH", "/v1/memories/{key}"),
    "memory_delete": ("DELETE", "/v1/memories/{key}"),
    "memory_list": ("GET", "/v1/memories"),
    "memory_search": ("GET", "/v1/memories/search"),
    "memory_fulltext_search": ("GET", "/v1/memories/fulltext"),
    "create_rule": ("POST", "/v1/rules"),
    "list_rules": ("GET", "/v1/rules"),
    "delete_rule": ("DELETE", "/v1/rules/{rule_id}"),
    "run_rule_plan": ("POST", "/v1/rules/{rule_id}/plan"),
    "apply_rule_plan": ("POST", "/v1/plans/{plan_id}/apply"),
    "list_identities": ("GET", "/v1/identities"),
    "create_alias": ("POST", "/v1/identities"),
    "get_capabilities": ("GET", "/v1/capabilities"),
}
"""The endpoint of each tool."""

COMMANDS = {
    "create_inbox": "inbox create",
    "list_inboxes": "inbox list",
    "list_messages": "message list",
    "search_messages": "search",
    "get_message": "message show",
    "update_message": "message update",
    "apply_label": "message label",
    "move_message": "message move",
    "list_threads": "thread list",
    "get_thread": "thread show",
    "list_attachments": "attachment list",
    "get_attachment_content": "attachment content",
    "send_message": "send",
    "reply_to_message": "message reply",
    "memory_add": "memory add",
    "memory_get": "memory show",
    "memory_update": "memory update",
    "memory_delete": "memory delete",
    "memory_list": "memory list",
    "memory_search": "memory search",
    "memory_fulltext_search": "memory keywords",
    "create_rule": "rule create",
    "list_rules": "rule list",
    "delete_rule": "rule delete",
    "run_rule_plan": "rule plan",
    "apply_rule_plan": "rule apply",
    "list_identities": "identity list",
    "create_alias": "identity create",
    "get_capabilities": "account capabilities",
}
"""The command of each tool."""


class CallRefused(Exception):
    """An error response: its kind and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class SurfaceClient(Protocol):
    """A client of one surface."""

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call one operation. Raises CallRefused."""


class RestClient:
    """REST, called over HTTP."""

    def __init__(self, server: Running) -> None:
        headers = {"Authorization": f"Bearer {server.key}"}
        self.http = httpx2.AsyncClient(
            base_url=server.url, headers=headers, timeout=TIMEOUT_S, verify=NO_TLS
        )

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        method, path = PATHS[tool]
        left = {**({"format": "base64"} if tool == "get_attachment_content" else {}), **arguments}
        for name in list(left):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(left.pop(name)), safe=""))
        if method in ("GET", "DELETE"):
            response = await self.http.request(method, path, params=_plain(left))
        else:
            response = await self.http.request(method, path, json=left)
        body: dict[str, Any] = response.json()
        if response.is_error:
            raise CallRefused(body["code"], body["detail"])
        return body


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
    }


class McpClient:
    """MCP, called by the official client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        body: dict[str, Any] = result.structured_content or {}
        assert body == json.loads(result.content[0].text)  # type: ignore[union-attr]
        if result.is_error:
            raise CallRefused(body["error"]["details"]["kind"], body["error"]["message"])
        return body


class CliClient:
    """The command line, one process for each call."""

    def __init__(self, server: Running, fork_server: ForkServer) -> None:
        self._env = server.env
        self._fork_server = fork_server

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        options = [word for name, value in arguments.items() for word in _option(name, value)]
        words = ["-o", "json", *COMMANDS[tool].split(), *options]
        ended = await asyncio.to_thread(self._fork_server.run, words, self._env)
        if ended.code == 0:
            body: dict[str, Any] = json.loads(ended.out)
            return body
        error = json.loads(ended.err)["error"]
        raise CallRefused(error["code"], error["message"])


def _option(name: str, value: Any) -> list[str]:
    option = "--" + name.replace("_", "-")
    if value is True:
        return [option]
    if isinstance(value, list):
        return [word for item in value for word in (option, str(item))]
    return [option, str(value)]


@asynccontextmanager
async def open_client(kind: str, server: Running) -> AsyncIterator[SurfaceClient]:
    """Open a client of one kind to a server, or to its data folder."""
    if kind == "rest":
        client = RestClient(server)
        async with client.http:
            yield client
    elif kind == "mcp-http":
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S, verify=NO_TLS) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with Client(transport) as session:
                yield McpClient(session)
    elif kind == "mcp-stdio":
        program, *words = forked_command("mcp")
        parameters = StdioServerParameters(command=program, args=words, env=server.env)
        async with Client(parameters) as session:
            yield McpClient(session)
    else:
        yield CliClient(server, shared_fork_server())
