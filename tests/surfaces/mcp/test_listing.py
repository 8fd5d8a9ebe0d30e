"""The list of tools that an agent gets, and its size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.calls.request import argument_names
from postroom.errors import InvalidInput
from postroom.operations.mail import message_changes
from postroom.surfaces.mcp import toolsets
from postroom.surfaces.mcp.tool import Tool, describe
from postroom.surfaces.mcp.tool_listing import FILE, choose, read_listing
from postroom.surfaces.mcp.toolsets import ON_DEMAND, TOOLSETS, choose_tools, listing

GOLDEN = Path(__file__).parents[2] / "golden" / "tools" / "tools.json"
KB = 1024
INBOX = {
    "create_inbox",
    "list_inboxes",
    "list_messages",
    "search_messages",
    "get_message",
    "list_threads",
    "get_thread",
    "list_attachments",
    "get_attachment_content",
    "send_email",
    "send_email_with_attachments",
    "reply_to_message",
    "cancel_message",
    "list_drafts",
    "wait_for_message",
}
MAIL = {
    "search_messages",
    "get_message",
    "get_thread",
    "apply_label",
    "move_message",
    "update_message",
    "delete_message",
    "send_message",
    "forward_message",
    "create_draft",
    "send_draft",
    "create_rule",
    "run_rule_plan",
    "apply_rule_plan",
    "undo_rule_plan",
    "list_rules",
    "delete_rule",
    "list_identities",
    "create_alias",
    "get_capabilities",
}
MEMORY = {
    "memory_add",
    "memory_get",
    "memory_update",
    "memory_delete",
    "memory_list",
    "memory_search",
    "memory_fulltext_search",
}
READS = ("list_", "get_", "search_", "wait_", "memory_get", "memory_list", "memory_search",
         "memory_fulltext_search", "run_rule_plan")  # fmt: skip


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def listed() -> list[dict[str, Any]]:
    return describe(choose_tools(useful=ON_DEMAND))


def test_the_tools_are_the_reviewed_ones(pytestconfig):
    """A change of any text that agents read must be reviewed."""
    written = json.dumps(listed(), indent=1, ensure_ascii=False) + "\n"
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.write_text(written, "utf-8")

    assert GOLDEN.read_text("utf-8") == written


def test_the_shipped_list_is_current(pytestconfig):
    """`postroom mcp` answers tools/list from this file, before it loads the operations."""
    if pytestconfig.getoption("--update-golden"):
        FILE.write_text(listing(), "utf-8")

    assert FILE.read_text("utf-8") == listing()


def test_the_shipped_list_is_filtered_like_the_tools():
    shipped = choose(read_listing(), read_only=True, without={"memory_search"})

    assert [tool.entry for tool in shipped] == describe(
        choose_tools(read_only=True, without={"memory_search"})
    )


def test_the_toolsets_hold_the_tools_of_their_contracts():
    assert {tool.name for tool in TOOLSETS["inbox"]} == INBOX
    assert {tool.name for tool in TOOLSETS["mail"]} == MAIL
    assert {tool.name for tool in TOOLSETS["memory"]} == MEMORY


def test_the_list_is_the_same_every_time():
    assert compact(listed()) == compact(listed())


def test_the_default_list_stays_small():
    """Without a live account: an account adds its tools."""
    assert len(compact(describe(choose_tools())).encode()) < 36 * KB


@pytest.mark.parametrize("name", [*TOOLSETS, *ON_DEMAND])
def test_a_single_toolset_stays_small(name):
    assert len(compact(describe(choose_tools([name]))).encode()) < 16 * KB


@pytest.mark.parametrize("tool", listed(), ids=lambda tool: tool["name"])
def test_a_parameter_has_a_description_and_an_example(tool):
    for name, schema in tool["inputSchema"]["properties"].items():
        assert schema["description"].endswith((".", "!")), name
        [example] = schema["examples"]
        assert fits(example, schema), name


def fits(example: object, schema: dict[str, Any]) -> bool:
    kinds = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
    return isinstance(example, kinds[schema["type"]])


@pytest.mark.parametrize("tool", listed(), ids=lambda tool: tool["name"])
def test_a_schema_is_flat_enough_for_every_client(tool):
    for schema in (tool["inputSchema"], tool["outputSchema"]):
        text = compact(schema)

        assert not [word for word in ("anyOf", "oneOf", "allOf", "$ref", "$defs") if word in text]
        assert '"type":[' not in text
        assert "object" == schema["type"]


@pytest.mark.parametrize("tool", listed(), ids=lambda tool: tool["name"])
def test_a_tool_has_a_title_and_an_output_schema(tool):
    assert tool["title"]
    assert 40 <= len(tool["description"]) <= 300
    assert "required" not in tool["outputSchema"]
    assert not {"additionalProperties", "error"} & tool["outputSchema"].keys()
    assert tool["outputSchema"]["properties"]


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        ("search_messages", {"readOnlyHint": True, "openWorldHint": False}),
        (
            "apply_label",
            {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        ),
        (
            "send_email",
            {
                "destructiveHint": False,
                "openWorldHint": True,
            },
        ),
        ("imap_get_message", {"readOnlyHint": True, "openWorldHint": True}),
        (
            "imap_delete_message",
            {
                "destructiveHint": True,
                "openWorldHint": True,
            },
        ),
    ],
)
def test_hints_follow_from_what_the_operation_needs(name, hints):
    [tool] = [tool for tool in listed() if tool["name"] == name]

    assert hints == tool["annotations"]


@pytest.mark.parametrize(
    ("name", "argument", "default"),
    [
        ("search_messages", "limit", 50),
        ("search_messages", "offset", 0),
        ("get_message", "include_attachments", False),
        ("get_thread", "limit", 50),
        ("create_rule", "dry_run", True),
        ("list_identities", "limit", 50),
        ("list_identities", "offset", 0),
    ],
)
def test_a_default_of_the_contract_is_in_the_schema(name, argument, default):
    [tool] = [tool for tool in listed() if tool["name"] == name]

    assert default == tool["inputSchema"]["properties"][argument]["default"]


@pytest.mark.parametrize("tool", listed(), ids=lambda tool: tool["name"])
def test_a_cursor_argument_is_described(tool):
    takes_one = "cursor" in tool["inputSchema"]["properties"]

    assert takes_one or "next_cursor" not in tool["outputSchema"]["properties"]


def test_a_destructive_tool_says_so():
    tool = Tool(name="delete_message", title="Delete", operation=message_changes.delete_message)

    assert tool.annotations["destructiveHint"]


def test_read_only_hides_every_write():
    names = {tool.name for tool in choose_tools(read_only=True)}

    assert names == {name for name in INBOX | MAIL | MEMORY if name.startswith(READS)}


def test_a_disabled_feature_has_no_tools():
    names = {tool.name for tool in choose_tools(["memory"], without={"memory_search"})}

    assert names == MEMORY - {"memory_search", "memory_fulltext_search"}


def test_a_tool_of_two_toolsets_is_listed_once():
    names = [tool.name for tool in choose_tools(["mail", "inbox", "mail"])]

    assert len(names) == len(set(names))
    assert set(names) == INBOX | MAIL


def test_an_unknown_toolset_is_refused_with_a_suggestion():
    with pytest.raises(InvalidInput, match="no toolset inbix; did you mean inbox"):
        choose_tools(["inbix"])


def test_two_tools_of_one_name_are_a_start_up_error(monkeypatch):
    impostor = Tool(name="get_message", title="Another", operation=message_changes.list_labels)
    monkeypatch.setitem(toolsets.TOOLSETS, "mail", (impostor,))

    with pytest.raises(RuntimeError, match="two different tools are named get_message"):
        choose_tools()


SELDOM_NEEDED = {
    "add_flags",
    "add_labels",
    "remove_flags",
    "remove_labels",
    "allow_duplicate",
    "attachments",
    "automatic",
    "bcc",
    "body_html",
    "cc",
    "cursor",
    "flags",
    "from",
    "headers",
    "idempotency_key",
    "in_reply_to",
    "inbox_id",
    "limit",
    "mode",
    "offset",
    "query",
    "reply_to",
    "send_at",
    "sort",
    "subject",
    "thread_id",
    "wait_s",
}
"""Unlisted arguments of tools: alternatives to listed ones."""


@pytest.mark.parametrize("tool", choose_tools(), ids=lambda tool: tool.name)
def test_an_unlisted_argument_is_refused_unless_rarely_needed(tool: Tool):
    listed = set(describe([tool])[0]["inputSchema"]["properties"])
    words = {operations: tools for tools, operations in tool.rename.items()}
    known = {words.get(name, name) for name in argument_names(tool.operation.request)}

    for name in known - listed - SELDOM_NEEDED:
        with pytest.raises(InvalidInput, match=f"{name}: {tool.name} does not take it"):
            tool.arguments({name: "x"})


def test_a_row_may_rename_hide_and_pin_arguments():
    tool = Tool(
        name="archive",
        title="Archive",
        operation=message_changes.move_message,
        rename={"id": "message_id"},
        pin={"destination": "Archive"},
    )

    schema = describe([tool])[0]["inputSchema"]

    assert ["id"] == list(schema["properties"])
    assert ["id"] == schema["required"]
    assert {"message_id": "msg_1", "destination": "Archive"} == tool.arguments({"id": "msg_1"})
    with pytest.raises(InvalidInput, match="destination"):
        tool.arguments({"id": "msg_1", "destination": "Trash"})
