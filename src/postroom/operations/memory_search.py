"""Search of memories by words and by meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Accepts, Repeatable, argument
from postroom.errors import FeatureDisabled, InvalidInput
from postroom.mail.text.fold import fold
from postroom.model.key import Scope
from postroom.model.memory import Keyword, MemoryHit, MemoryQuery, Vector, collection_of
from postroom.model.message import MessageRow
from postroom.model.page import Found, Page
from postroom.model.storage import MessageQuery
from postroom.operations.memories import MemoryFilter, empty_page, sees
from postroom.pipeline.embedding import EMBED_LIMIT, embed_mail, finish_embedding

_MAX_TERMS = 64


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """The terms of a query and, if there is a model, its vector."""

    terms: tuple[str, ...]
    vector: Vector | None
    model: str


async def embed_query(ctx: RequestContext, question: str) -> EmbeddedQuery:
    """Compute terms and vector of a query. Raises ProviderError."""
    # Imported on first use: its patterns are slow to compile.
    from postroom.mail.text.terms import question_terms

    terms = tuple(question_terms(question)[:_MAX_TERMS])
    if ctx.embedder is None:
        return EmbeddedQuery(terms, None, "")
    [vector] = await ctx.embedder.embed([question])
    return EmbeddedQuery(terms, vector, ctx.embedder.model)


async def rank_mail(ctx: RequestContext, query: MessageQuery, question: str) -> Found[MessageRow]:
    """Mail ranked by words and meaning of a query, the most relevant first."""
    await embed_mail(ctx, query)
    embedded = await embed_query(ctx, question)
    return await ctx.store.rank_mail(
        query, embedded.terms, vector=embedded.vector, model=embedded.model
    )


_MAX_KEYWORDS = 64
_NO_KEYWORD = 'give at least one word, such as invoice or "net 30"'


def check_enabled(ctx: RequestContext) -> None:
    """Raise FeatureDisabled if memory search is switched off."""
    if not ctx.memory_search:
        raise FeatureDisabled(
            "memory search is switched off; set POSTROOM_MEMORY_SEARCH=true to switch it on"
        )


class MemorySearch(MemoryFilter):
    """Search memories by meaning and by words, the most relevant first.

    Ask in your own words. `relevance` is 0 to 1. memory_get reads one in full.
    """

    query: Annotated[
        str,
        argument("The question.", "how does Ana like to be billed?", min_length=1, max_length=1000),
        Accepts({"pattern": request.SOUGHT}),
    ]


@operation(Scope.READ)
async def memory_search(ctx: RequestContext, request: MemorySearch) -> Page[MemoryHit]:
    check_enabled(ctx)
    query = request.criteria(ctx)
    if not fold(request.query):
        raise InvalidInput("query: contains only white space")
    if not sees(ctx, request.namespace):
        return empty_page(query)
    embedded = await embed_query(ctx, request.query)
    return ctx.cursors.page(request, await _find(ctx, query, embedded))


async def _find(
    ctx: RequestContext, query: MemoryQuery, embedded: EmbeddedQuery
) -> Found[MemoryHit]:
    """Search; if texts are not embedded yet, embed them first. Mostly there are none."""
    if embedded.vector is not None:
        found = await ctx.store.search_embedded_memories(
            query,
            embedded.terms,
            vector=embedded.vector,
            model=embedded.model,
            max_unembedded=EMBED_LIMIT,
        )
        if found is not None:
            return found
        await finish_embedding(ctx, collection_of(query.namespace))
    return await ctx.store.search_memories(
        query, embedded.terms, vector=embedded.vector, model=embedded.model
    )


def _as_text(value: object) -> object:
    """Accept a list of keywords. Raises ValueError."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value) + "," if any(value) else ""
    if value == "":
        raise ValueError(_NO_KEYWORD)
    return value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class MemoryFulltextSearch(MemoryFilter):
    """Search memories by keywords, stemmed and in any case; matches are in <mark> in `excerpt`."""

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
        Accepts({"pattern": request.SOUGHT}),
        Repeatable(),
    ]
    operator: Annotated[
        Literal["OR", "AND"], BeforeValidator(_upper), argument("Any or all keywords.", "AND")
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
    if not sees(ctx, request.namespace):
        return empty_page(query)
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
