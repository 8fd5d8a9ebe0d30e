"""Toolset `memory`: what an agent knows, as contract 003 names it."""

from __future__ import annotations

from postroom.operations import memories, memory_search
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets.inbox import BY_OFFSET

MEMORY = ("key", "text", "trust", "version")
READ_ON = "memory_get reads one in full; offset reads on in the list"

OWNERS_WORD = {"trust": None}
"""Vouching is for people, who have REST and the command line: no tool takes it from anybody."""

TOOLS = (
    Tool(
        "memory_add",
        "Remember",
        memories.memory_add,
        is_idempotent=True,
        answers=(*MEMORY, "created", "similar"),
    ),
    Tool(
        "memory_get",
        "Read a memory",
        memories.memory_get,
        answers=(*MEMORY, "tags", "links", "next_offset"),
        go_on="text_offset reads on in text, with a smaller max_chars",
    ),
    Tool(
        "memory_update",
        "Change a memory",
        memories.memory_update,
        is_idempotent=True,
        pin=OWNERS_WORD,
        answers=MEMORY,
    ),
    Tool("memory_delete", "Forget a memory", memories.memory_delete, is_idempotent=True),
    Tool("memory_list", "List memories", memory_search.memory_list, hide=BY_OFFSET, go_on=READ_ON),
    Tool(
        "memory_search",
        "Search memories",
        memory_search.memory_search,
        hide=BY_OFFSET,
        feature="memory_search",
        go_on=READ_ON,
    ),
    Tool(
        "memory_fulltext_search",
        "Search memories by keywords",
        memory_search.memory_fulltext_search,
        hide=BY_OFFSET,
        feature="memory_search",
        go_on=READ_ON,
    ),
)
