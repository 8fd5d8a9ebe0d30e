"""The tools that the official conformance suite calls, added to a server under test.

The suite expects the same tools of each server, which no mail server has: one returns an image, one
reports progress, one asks the user a question. They do not test our tools, but all of their
messages go through our transport, checks and middleware.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

Call = types.CallToolRequestParams
RequestContext = ServerRequestContext[Any, Any]
Result = dict[str, Any]

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8Dw"
    "HwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
PAUSE_S = 0.05
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class TestTool:
    description: str
    call: Callable[[RequestContext, Call], Awaitable[Result]]
    input_schema: dict[str, Any] = field(default_factory=lambda: NO_ARGUMENTS)

    __test__ = False


def add_test_tools(server: Server[Any]) -> None:
    """Serve the tools of this module in addition to those of `server`."""
    ours = {m: server.get_request_handler(m) for m in ("tools/list", "tools/call")}
    our_list, our_call = ours["tools/list"], ours["tools/call"]
    if our_list is None or our_call is None:
        raise ValueError("the server under test serves no tools")

    async def list_tools(ctx: RequestContext, params: types.PaginatedRequestParams) -> Any:
        listed = await our_list.handler(ctx, params)
        return listed.model_copy(update={"tools": [*listed.tools, *LISTING]})

    async def call_tool(ctx: RequestContext, params: Call) -> Any:
        tool = TOOLS.get(params.name)
        if tool is None:
            return await our_call.handler(ctx, params)
        result = await tool.call(ctx, params)
        return result if "resultType" in result else types.CallToolResult.model_validate(result)

    server.add_request_handler("tools/list", our_list.params_type, list_tools)
    server.add_request_handler("tools/call", our_call.params_type, call_tool)
    if not any(isinstance(m, RequestStateBoundary) for m in server.middleware):
        security = RequestStateSecurity.ephemeral()
        server.middleware.append(RequestStateBoundary(security, default_audience=server.name))


def text(words: str) -> Result:
    return {"content": [{"type": "text", "text": words}]}


def embedded(uri: str, mime_type: str, words: str) -> Result:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
EMBEDDED = embedded(
    "test://embedded-resource", "text/plain", "This is an embedded resource content."
)
MIXED = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')


def always(result: Result) -> Callable[[RequestContext, Call], Awaitable[Result]]:
    async def call(ctx: RequestContext, params: Call) -> Result:
        return result

    return call


async def report_progress(ctx: RequestContext, params: Call) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(PAUSE_S)
    return text("done")


async def log_three_times(ctx: RequestContext, params: Call) -> Result:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await asyncio.sleep(PAUSE_S)
    return text("done")


async def need_sampling(ctx: RequestContext, params: Call) -> Result:
    if ctx.session.check_client_capability(
        types.ClientCapabilities(sampling=types.SamplingCapability())
    ):
        return text("the client can sample")
    raise MCPError(
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        "this tool needs a client that can sample",
        {"requiredCapabilities": {"sampling": {}}},
    )


async def ask_the_model(ctx: RequestContext, params: Call) -> Result:
    prompt = types.TextContent(type="text", text=(params.arguments or {})["prompt"])
    answer = await ctx.session.create_message(
        [types.SamplingMessage(role="user", content=prompt)],
        max_tokens=100,
        related_request_id=ctx.request_id,
    )
    return text(f"LLM response: {answer.content}")


def ask_the_person(schema: dict[str, Any]) -> Callable[[RequestContext, Call], Awaitable[Result]]:
    """A question of revisions up to 2025-11-25: the call waits for the client's answer."""

    async def call(ctx: RequestContext, params: Call) -> Result:
        message = (params.arguments or {}).get("message", "Please fill in the form")
        answer = await ctx.session.elicit_form(message, schema, ctx.request_id)
        return text(f"Elicitation completed: action={answer.action}, content={answer.content}")

    return call


def form(message: str, name: str, kind: str = "string") -> Result:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sample(prompt: str) -> Result:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


ROOTS: Result = {"method": "roots/list", "params": {}}


def input_required(requests: Result, state: str | None = None) -> Result:
    """A question of revision 2026-07-28: the call ends, and is repeated with the answer."""
    result: Result = {"resultType": "input_required", "inputRequests": requests}
    return result if state is None else {**result, "requestState": state}


def ask(
    requests: Result, answer: str = "thank you", *, state: str | None = None
) -> Callable[[RequestContext, Call], Awaitable[Result]]:
    """Ask until every request has its response; with `state`, it must be returned as well."""

    async def call(ctx: RequestContext, params: Call) -> Result:
        if (
            requests.keys() <= (params.input_responses or {}).keys()
            and params.request_state == state
        ):
            return text(f"{answer} {params.input_responses}")
        return input_required(requests, state)

    return call


async def ask_twice(ctx: RequestContext, params: Call) -> Result:
    answered = set(params.input_responses or {})
    if params.request_state == "asked for both" and "step2" in answered:
        return text("thank you for both")
    if params.request_state == "asked for the name" and "step1" in answered:
        step2 = form("Step 2: What is your favorite color?", "color")
        return input_required({"step2": step2}, "asked for both")
    return input_required(
        {"step1": form("Step 1: What is your name?", "name")}, "asked for the name"
    )


async def ask_what_the_client_can(ctx: RequestContext, params: Call) -> Result:
    can = ctx.session.client_capabilities or types.ClientCapabilities()
    requests = {}
    if can.elicitation is not None:
        requests["question"] = form("What is your name?", "name")
    if can.sampling is not None:
        requests["prompt"] = sample("What is the capital of France?")
    return input_required(requests) if requests else text("the client can do neither")


FORM_WITH_DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
FORM_WITH_ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": OPTIONS, "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}
PERSON_FORM = {
    "type": "object",
    "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
    "required": ["username", "email"],
}
BROAD_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def one_string(name: str, **more: str) -> dict[str, Any]:
    properties = {name: {"type": "string", **more}}
    return {"type": "object", "properties": properties, "required": [name]}


WHO = {"user_name": form("What is your name?", "name")}
CAPITAL = {"capital_question": sample("What is the capital of France?")}
CONFIRM = {"confirm": form("Please confirm", "ok", "boolean")}
EVERYTHING = {**WHO, "greeting": sample("Generate a greeting"), "client_roots": ROOTS}

TOOLS = {
    "test_simple_text": TestTool(
        "Returns text.", always(text("This is a simple text response for testing."))
    ),
    "test_image_content": TestTool("Returns an image.", always({"content": [IMAGE]})),
    "test_audio_content": TestTool("Returns a sound.", always({"content": [AUDIO]})),
    "test_embedded_resource": TestTool("Returns a resource.", always({"content": [EMBEDDED]})),
    "test_multiple_content_types": TestTool(
        "Returns text, an image and a resource.",
        always({"content": [*text("Multiple content types test:")["content"], IMAGE, MIXED]}),
    ),
    "test_error_handling": TestTool(
        "Always fails.",
        always(
            {**text("This tool intentionally returns an error for testing"), "isError": True},
        ),
    ),
    "test_tool_with_progress": TestTool("Reports its progress.", report_progress),
    "test_tool_with_logging": TestTool("Logs three lines.", log_three_times),
    "test_logging_tool": TestTool("Logs three lines.", log_three_times),
    "test_missing_capability": TestTool("Needs a client that can sample.", need_sampling),
    "test_sampling": TestTool("Asks the model.", ask_the_model, one_string("prompt")),
    "test_elicitation": TestTool(
        "Asks the person.", ask_the_person(PERSON_FORM), one_string("message")
    ),
    "test_elicitation_sep1034_defaults": TestTool(
        "Asks the person, with defaults.", ask_the_person(FORM_WITH_DEFAULTS)
    ),
    "test_elicitation_sep1330_enums": TestTool(
        "Asks the person, with choices.", ask_the_person(FORM_WITH_ENUMS)
    ),
    "test_streaming_elicitation": TestTool("Asks the person.", ask(WHO)),
    "test_input_required_result_elicitation": TestTool("Asks the person.", ask(WHO, "Hello")),
    "test_input_required_result_sampling": TestTool("Asks the model.", ask(CAPITAL)),
    "test_input_required_result_list_roots": TestTool(
        "Asks for the roots.", ask({"client_roots": ROOTS})
    ),
    "test_input_required_result_request_state": TestTool(
        "Asks, and wants its state back.", ask(CONFIRM, "state-ok", state="asked")
    ),
    "test_input_required_result_tampered_state": TestTool(
        "Asks, and wants its state back unchanged.", ask(CONFIRM, state="asked")
    ),
    "test_input_required_result_multiple_inputs": TestTool(
        "Asks three things at once.", ask(EVERYTHING, state="asked")
    ),
    "test_input_required_result_multi_round": TestTool("Asks twice.", ask_twice),
    "test_input_required_result_capabilities": TestTool(
        "Asks what the client can answer.", ask_what_the_client_can
    ),
    "json_schema_2020_12_tool": TestTool(
        "Takes arguments of a broad schema.", always(text("done")), BROAD_SCHEMA
    ),
    "test_custom_header": TestTool(
        "Takes an argument that travels in a header too.",
        always(text("done")),
        one_string("region", **{"x-mcp-header": "Region"}),
    ),
}
LISTING = [
    types.Tool(name=name, description=tool.description, input_schema=tool.input_schema)
    for name, tool in TOOLS.items()
]
