"""Undocumented names of other libraries that the code uses.

Each library has one module that uses such names. After an upgrade that removes one, the test of
that library names it; the ranges in pyproject.toml hold the versions that passed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from importlib.metadata import version

import aiosmtplib
import aiosmtplib.protocol
import uvicorn
import yaml
from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState


def check(library: str, owner: object, names: Iterable[str], module: str) -> None:
    missing = [name for name in names if not hasattr(owner, name)]
    kind = owner.__name__ if inspect.isclass(owner) or inspect.ismodule(owner) else type(owner)
    assert [] == missing, (
        f"{library} {version(library)}: {kind} has no {missing}; {module} uses them"
    )


def parameters(function: object) -> set[str]:
    return set(inspect.signature(function).parameters)


class ClosedTransport(asyncio.Transport):
    def write(self, data):
        pass

    def close(self):
        pass

    def is_closing(self):
        return True


async def no_content(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


CONFIG = uvicorn.Config(no_content, lifespan="off", log_config=None)


async def test_uvicorn_has_the_names_that_the_http_protocol_overrides():
    module = "postroom.surfaces.rest.http_protocol"
    state = ServerState()
    protocol = H11Protocol(CONFIG, state, {})
    protocol.connection_made(ClosedTransport())
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    await asyncio.gather(*state.tasks)

    attributes = "loop transport conn cycle flow client app_state server_state"
    methods = """
        connection_made data_received connection_lost pause_writing resume_writing
        on_response_complete send_400_response timeout_keep_alive_handler
    """
    check("uvicorn", protocol, [*attributes.split(), *methods.split()], module)
    check("uvicorn", protocol.cycle, ["response_started", "response_complete"], module)
    check("uvicorn", protocol.flow, ["write_paused"], module)
    check("uvicorn", state, ["connections"], module)
    assert protocol in state.connections
    assert 1 == state.total_requests, "on_response_complete was not called"
    assert protocol.cycle.response_started
    assert protocol.cycle.response_complete


def test_uvicorn_has_the_names_that_the_server_overrides():
    server = uvicorn.Server(CONFIG)
    names = "server_state should_exit force_exit startup shutdown capture_signals"

    check("uvicorn", server, names.split(), "postroom.surfaces.rest.http_protocol")
    assert {"sockets"} == parameters(server.startup) == parameters(server.shutdown)


async def test_aiosmtplib_has_the_names_that_the_relay_uses():
    module = "postroom.providers.smtp_relay"

    check("aiosmtplib", aiosmtplib.SMTP(), ["protocol", "is_ehlo_or_helo_needed"], module)
    protocol = aiosmtplib.protocol.SMTPProtocol
    check("aiosmtplib", protocol, ["write", "read_response"], module)
    check("aiosmtplib", aiosmtplib.protocol, ["normalize_message_line_endings"], module)
    assert "timeout" in parameters(protocol.read_response)


def test_the_mcp_sdk_has_the_names_that_the_fast_path_calls():
    names = {"connection", "lifespan_state"}

    assert names <= parameters(serve_one)
    check("mcp", Connection, ["from_envelope"], "postroom.surfaces.mcp.http")


def test_yaml_has_the_names_that_the_rule_loader_overrides():
    names = ["fetch_flow_collection_start", "flow_level", "get_mark"]

    check("pyyaml", yaml.SafeLoader(""), names, "postroom.rules.yaml_document")
