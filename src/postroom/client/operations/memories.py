"""Operations: memories. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import UNSET, UnsetType

from postroom.client.method import operation, pages
from postroom.client.responses import Page
from postroom.client.values.inputs import MemoryLink
from postroom.client.values.memories import ForgottenMemory, Memory, MemoryHit, MemoryRow


class MemoriesOperations:
    """Notes that agents store."""

    @operation("POST", "/v1/memories")
    def memory_add(
        self,
        key: str,
        text: str,
        *,
        summary: str | None = None,
        tags: Sequence[str] | None = None,
        links: Sequence[MemoryLink] | None = None,
        expires_at: datetime | str | None = None,
        namespace: str | None = None,
    ) -> Memory:
        """Remember something under a key.

        An existing key gets a new version; omitted fields stay. `similar` lists memories with
        nearly the same text: prefer to update one of these.

        Args:
            key: Its name in the namespace.
            text: What to remember.
            summary: One line about it; default: the beginning of the text.
            tags: Tags.
            links: Where it comes from or whom it is about: to is a message, thread, address
                or memory key.
            expires_at: When it expires.
            namespace: The namespace (default default).
        """

    @pages("GET", "/v1/memories")
    def memory_list(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        tags: Sequence[str] | None = None,
        linked_to: str | None = None,
        since: datetime | str | None = None,
        namespace: str | None = None,
    ) -> Page[MemoryRow]:
        """List memories without their texts, most recently changed first.

        Args:
            tags: With all of these tags.
            linked_to: Linked to this message, thread, address or key.
            since: Changed from this time on.
            namespace: The namespace (default default).
        """

    @pages("GET", "/v1/memories/search")
    def memory_search(
        self,
        query: str,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        tags: Sequence[str] | None = None,
        linked_to: str | None = None,
        since: datetime | str | None = None,
        namespace: str | None = None,
    ) -> Page[MemoryHit]:
        """Search memories by meaning and by words, most relevant first.

        Ask in natural language. `relevance` is 0 to 1. memory_get reads one in full.

        Args:
            query: The question.
            tags: With all of these tags.
            linked_to: Linked to this message, thread, address or key.
            since: Changed from this time on.
            namespace: The namespace (default default).
        """

    @pages("GET", "/v1/memories/fulltext")
    def memory_fulltext_search(
        self,
        keywords: str,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        tags: Sequence[str] | None = None,
        linked_to: str | None = None,
        since: datetime | str | None = None,
        namespace: str | None = None,
        operator: Literal["OR", "AND"] | None = None,
    ) -> Page[MemoryHit]:
        """Search memories by keywords, stemmed and ignoring case; `excerpt` has <mark> tags.

        Args:
            keywords: Keywords with commas (or spaces only); "…" is a phrase.
            tags: With all of these tags.
            linked_to: Linked to this message, thread, address or key.
            since: Changed from this time on.
            namespace: The namespace (default default).
            operator: Any or all keywords (default OR).
        """

    @operation("GET", "/v1/memories/{key}")
    def memory_get(
        self,
        key: str,
        *,
        namespace: str | None = None,
        include_history: bool | None = None,
        max_chars: int | None = None,
        text_offset: int | None = None,
    ) -> Memory:
        """Read a memory. A long text comes in parts.

        Args:
            key: Its name in the namespace.
            namespace: The namespace (default default).
            include_history: Add its older versions.
            max_chars: Cut the text here (default 12000).
            text_offset: Continue from next_offset.
        """

    @operation("PATCH", "/v1/memories/{key}")
    def memory_update(
        self,
        key: str,
        *,
        text: str | UnsetType | None = UNSET,
        summary: str | UnsetType | None = UNSET,
        tags: Sequence[str] | UnsetType | None = UNSET,
        links: Sequence[MemoryLink] | UnsetType | None = UNSET,
        expires_at: datetime | str | UnsetType | None = UNSET,
        trust: Literal["user"] | UnsetType | None = UNSET,
        namespace: str | UnsetType | None = UNSET,
    ) -> Memory:
        """Change an existing memory; omitted fields stay. The old version is kept.

        Args:
            key: Its name in the namespace.
            text: What to remember.
            summary: One line about it; default: the beginning of the text.
            tags: All its tags.
            links: Where it comes from or whom it is about: to is a message, thread, address
                or memory key.
            expires_at: When it expires, or never.
            trust: Set its trust; only the owner can.
            namespace: The namespace (default default).
        """

    @operation("DELETE", "/v1/memories/{key}")
    def memory_delete(self, key: str, *, namespace: str | None = None) -> ForgottenMemory:
        """Delete a memory and its older versions permanently.

        Args:
            key: Its name in the namespace.
            namespace: The namespace (default default).
        """
