"""Toolset `memory`: what an agent knows, as contract 003 names it."""

from __future__ import annotations

from postroom.operations import memories, memory_search
from postroom.surfaces.mcp.tool import Tool

MEMORY = ("key", "text", "trust", "version")
READ_ON = "memory_get reads one in full; offset reads on in the list"

OWNERS_WORD = {"trust": None}
"""Vouching is for people, who have REST and the command line: no tool takes it from anybody."""

TOOLS = (
    Tool(
        name="memory_add",
        title="Remember",
        operation=memories.memory_add,
        is_idempotent=True,
        answers=(*MEMORY, "created", "similar"),
    ),
    Tool(
        name="memory_get",
        title="Read a memory",
        operation=memories.memory_get,
        answers=(*MEMORY, "tags", "links", "next_offset"),
        go_on="text_offset reads on in text, with a smaller max_chars",
    ),
    Tool(
        name="memory_update",
        title="Change a memory",
        operation=memories.memory_update,
        is_idempotent=True,
        pin=OWNERS_WORD,
        answers=MEMORY,
    ),
    Tool(
        name="memory_delete",
        title="Forget a memory",
        operation=memories.memory_delete,
        is_idempotent=True,
    ),
    Tool(
        name="memory_list",
        title="List memories",
        operation=memory_search.memory_list,
        go_on=READ_ON,
    ),
    Tool(
        name="memory_search",
        title="Search memories",
        operation=memory_search.memory_search,
        feature="memory_search",
        go_on=READ_ON,
    ),
    Tool(
        name="memory_fulltext_search",
        title="Search memories by keywords",
        operation=memory_search.memory_fulltext_search,
        feature="memory_search",
        go_on=READ_ON,
    ),
)
