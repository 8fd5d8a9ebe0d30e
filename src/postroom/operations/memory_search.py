"""Lists and searches of memories, by words and by meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Accepts, Moment, Paged, Repeatable, argument
from postroom.errors import FeatureDisabled, InvalidInput
from postroom.extras import missing
from postroom.mail.text.fold import fold
from postroom.model.key import Scope
from postroom.model.mail.message import MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import (
    DEFAULT_NAMESPACE,
    EmbeddedQuery,
    Keyword,
    MemoryHit,
    MemoryQuery,
    MemoryRow,
    NamespaceRow,
    collection_of,
)
from postroom.model.page import Found, Page
from postroom.operations.memories import LinkTarget, Namespace, Tags
from postroom.pipeline.maintenance import EMBED_LIMIT, embed_mail, finish_embedding

_MAX_TERMS = 64
BY_WORDS = f"found by words only: {missing('embeddings')}"
"""The hint of a search by meaning where there is no model."""


async def embed_query(ctx: RequestContext, query: str) -> EmbeddedQuery:
    """Compute terms and vector of a query. Raises ProviderError."""
    # Imported on first use: its patterns are slow to compile.
    from postroom.mail.text.terms import question_terms

    terms = tuple(question_terms(query)[:_MAX_TERMS])
    if ctx.embedder is None:
        return EmbeddedQuery(terms)
    [vector] = await ctx.embedder.embed([query])
    return EmbeddedQuery(terms, vector, ctx.embedder.model)


async def rank_mail(ctx: RequestContext, query: MessageQuery, question: str) -> Found[MessageRow]:
    """Mail ranked by words and meaning of a query, the most relevant first."""
    await embed_mail(ctx, query)
    return await ctx.store.rank_mail(query, await embed_query(ctx, question))


_MAX_KEYWORDS = 64
_NO_KEYWORD = 'give at least one word, such as invoice or "net 30"'


def check_enabled(ctx: RequestContext) -> None:
    """Raise FeatureDisabled if memory search is switched off."""
    if not ctx.memory_search:
        raise FeatureDisabled(
            "memory search is disabled; set POSTROOM_MEMORY_SEARCH=true to enable it"
        )


class MemoryFilter(Paged):
    """The filters that lists and searches of memories share."""

    tags: Annotated[Tags, argument("With all of these tags.", ["billing"])] = []
    linked_to: Annotated[
        LinkTarget | None,
        argument("Linked to this message, thread, address or key.", "ana@example.com"),
    ] = None
    since: Annotated[Moment, argument("Changed from this time on.", "2026-01-31")] = None
    namespace: Namespace = DEFAULT_NAMESPACE

    def criteria(self, ctx: RequestContext) -> MemoryQuery:
        """The query for the store. Raises InvalidInput on an invalid cursor."""
        return MemoryQuery(
            namespace=self.namespace,
            now=ctx.clock(),
            tags=tuple(dict.fromkeys(self.tags)),
            linked_to=self.linked_to,
            since=self.since,
            page=ctx.cursors.slice(self),
        )


class MemoryList(MemoryFilter):
    """List memories without their texts, most recently changed first."""


@operation(Scope.READ)
async def memory_list(ctx: RequestContext, request: MemoryList) -> Page[MemoryRow]:
    query = request.criteria(ctx)
    if not ctx.caller.namespaces.sees(request.namespace):
        return _empty_page(query)
    return ctx.cursors.page(request, await ctx.store.memories(query))


def _empty_page(query: MemoryQuery) -> Page[Any]:
    """The page of a namespace that does not exist for the caller."""
    return Page((), 0, query.page.limit, query.page.offset)


class ListNamespaces(Paged):
    """List the namespaces of memories, by name, with the number of their memories."""


@operation(Scope.READ)
async def list_namespaces(ctx: RequestContext, request: ListNamespaces) -> Page[NamespaceRow]:
    found = await ctx.store.namespaces(
        ctx.caller.namespaces, ctx.clock(), ctx.cursors.slice(request)
    )
    return ctx.cursors.page(request, found)


class MemorySearch(MemoryFilter):
    """Search memories by meaning and by words, most relevant first.

    Ask in natural language. `relevance` is 0 to 1. memory_get reads one in full.
    """

    query: Annotated[
        str,
        argument("The question.", "how does Ana like to be billed?", min_length=1, max_length=1000),
        Accepts({"pattern": request.SEARCH_TEXT}),
    ]


@operation(Scope.READ)
async def memory_search(ctx: RequestContext, request: MemorySearch) -> Page[MemoryHit]:
    check_enabled(ctx)
    query = request.criteria(ctx)
    if not fold(request.query):
        raise InvalidInput("query: contains only white space; give at least one word")
    if not ctx.caller.namespaces.sees(request.namespace):
        return _empty_page(query)
    embedded = await embed_query(ctx, request.query)
    page = ctx.cursors.page(request, await _find(ctx, query, embedded))
    return replace(page, hint=BY_WORDS) if ctx.lacks_model else page


async def _find(
    ctx: RequestContext, query: MemoryQuery, embedded: EmbeddedQuery
) -> Found[MemoryHit]:
    """Search; if texts are not embedded yet, embed them first. Mostly there are none."""
    if embedded.vector is not None:
        found = await ctx.store.search_embedded_memories(
            query, embedded, max_unembedded=EMBED_LIMIT
        )
        if found is not None:
            return found
        await finish_embedding(ctx, collection_of(query.namespace))
    return await ctx.store.search_memories(query, embedded)


def _as_text(value: object) -> object:
    """Accept a list of keywords. Raises ValueError."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value) + "," if any(value) else ""
    if value == "":
        raise ValueError(_NO_KEYWORD)
    return value


class MemoryFulltextSearch(MemoryFilter):
    """Search memories by keywords, stemmed and ignoring case; `excerpt` has <mark> tags."""

    keywords: Annotated[
        str,
        # Before the validator, so that errors about the length name a text.
        argument(
            'Keywords with commas (or spaces only); "…" is a phrase.',
            'invoice, "net 30"',
            min_length=1,
            max_length=1000,
        ),
        BeforeValidator(_as_text),
        Accepts({"pattern": request.SEARCH_TEXT}),
        Repeatable(),
    ]
    operator: Annotated[
        Literal["OR", "AND"],
        BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
        argument("Any or all keywords.", "AND"),
    ] = "OR"


@operation(Scope.READ)
async def memory_fulltext_search(
    ctx: RequestContext, request: MemoryFulltextSearch
) -> Page[MemoryHit]:
    check_enabled(ctx)
    query = request.criteria(ctx)
    keywords = list(dict.fromkeys(read_keywords(request.keywords)))
    if not keywords:
        raise InvalidInput(f"keywords: {_NO_KEYWORD}")
    if len(keywords) > _MAX_KEYWORDS:
        raise InvalidInput(
            f"keywords: there are {len(keywords)}; the limit is {_MAX_KEYWORDS}; or use"
            " memory_search with a question"
        )
    if not ctx.caller.namespaces.sees(request.namespace):
        return _empty_page(query)
    needs_all = request.operator == "AND"
    found = await ctx.store.search_keywords(query, keywords, needs_all=needs_all)
    return ctx.cursors.page(request, found)


_COMMAS = ",\uff0c\u3001\u060c"
"""The Latin, fullwidth, ideographic and Arabic commas."""

_PART = re.compile(rf'["“„«](?P<phrase>[^"“”„«»]*)["”“»]|(?P<plain>[^{_COMMAS}"“”„«»]+)')


def read_keywords(text: str) -> Iterator[Keyword]:
    """Split keywords at commas, or at spaces if there are none; quoted phrases stay whole.

    Text without a word, such as a dash, is skipped.
    """
    has_comma = any(comma in text for comma in _COMMAS)
    for part in _PART.finditer(text):
        if part["phrase"] is not None:
            yield from _keyword(part["phrase"], phrase=fold(part["phrase"]))
        elif has_comma:
            yield from _keyword(part["plain"])
        else:
            for word in part["plain"].split():
                yield from _keyword(word)


def _keyword(text: str, phrase: str | None = None) -> Iterator[Keyword]:
    from postroom.mail.text.terms import terms_of

    terms = tuple(terms_of(text))
    if terms:
        yield Keyword(terms, phrase)
