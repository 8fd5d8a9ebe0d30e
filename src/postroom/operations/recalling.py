"""Finding memories: by words and meaning, or by keywords."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from postroom.errors import FeatureDisabled, InvalidInput
from postroom.mail.fold import fold
from postroom.model.key import Scope
from postroom.model.memory import Keyword, MemoryHit, MemoryQuery, shelf_of
from postroom.model.page import Found, Page
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.memories import MemoryFilter, nothing, sees
from postroom.operations.operation import operation
from postroom.operations.questions import Meant, understand
from postroom.operations.request import Accepts, Repeatable
from postroom.pipeline.learning import FEW, finish_learning

_MOST_KEYWORDS = 64
_NO_KEYWORD = 'give at least one word, such as invoice or "net 30"'


def check_switched_on(ctx: Context) -> None:
    """Refuse when the search of memories is switched off. Raises FeatureDisabled."""
    if not ctx.memory_search:
        raise FeatureDisabled(
            "the search of memories is switched off; POSTROOM_MEMORY_SEARCH=true switches it on"
        )


class MemorySearch(MemoryFilter):
    """Search memories by meaning and by words, the most relevant first.

    Ask in your own words. `relevance` is 0 to 1. memory_get reads one in full.
    """

    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1000,
            description="The question.",
            examples=["how does Ana like to be billed?"],
        ),
        Accepts({"pattern": forms.SOUGHT}),
    ]


@operation(Scope.READ)
async def memory_search(ctx: Context, request: MemorySearch) -> Page[MemoryHit]:
    check_switched_on(ctx)
    query = request.criteria(ctx)
    if not fold(request.query):
        raise InvalidInput("query: there is nothing to look for in it but space")
    if not sees(ctx, request.namespace):
        return nothing(query)
    meant = await understand(ctx, request.query)
    return ctx.cursors.page(request, await _recalled(ctx, query, meant))


async def _recalled(ctx: Context, query: MemoryQuery, meant: Meant) -> Found[MemoryHit]:
    """What answers a question, once little is left to learn: mostly nothing is, so we ask first."""
    if meant.vector is not None:
        found = await ctx.store.recall_learnt(
            query, meant.terms, vector=meant.vector, model=meant.model, few=FEW
        )
        if found is not None:
            return found
        await finish_learning(ctx, shelf_of(query.namespace))
    return await ctx.store.recall(query, meant.terms, vector=meant.vector, model=meant.model)


def _as_text(value: object) -> object:
    """Accept a list where keywords with commas are wanted. Raises ValueError."""
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
        # Before the validator: what is too long is then said of a text, not of "a value".
        Field(
            min_length=1,
            max_length=1000,
            description='Keywords with commas (or spaces only); "…" is a phrase.',
            examples=['invoice, "net 30"'],
        ),
        BeforeValidator(_as_text),
        Accepts({"pattern": forms.SOUGHT}),
        Repeatable(),
    ]
    operator: Annotated[
        Literal["OR", "AND"],
        BeforeValidator(_upper),
        Field(description="Any or all keywords.", examples=["AND"]),
    ] = "OR"


@operation(Scope.READ)
async def memory_fulltext_search(ctx: Context, request: MemoryFulltextSearch) -> Page[MemoryHit]:
    check_switched_on(ctx)
    query = request.criteria(ctx)
    keywords = list(dict.fromkeys(read_keywords(request.keywords)))
    if not keywords:
        raise InvalidInput(f"keywords: {_NO_KEYWORD}")
    if len(keywords) > _MOST_KEYWORDS:
        raise InvalidInput(
            f"keywords: there are {len(keywords)}; give {_MOST_KEYWORDS} at most, or ask"
            " memory_search in your own words"
        )
    if not sees(ctx, request.namespace):
        return nothing(query)
    needs_all = request.operator == "AND"
    found = await ctx.store.recall_keywords(query, keywords, needs_all=needs_all)
    return ctx.cursors.page(request, found)


_COMMAS = ",\uff0c\u3001\u060c"
"""That of Latin, of Chinese, the one between things of a list there and in Japan, and of Arabic."""

_PART = re.compile(rf'["“„«](?P<phrase>[^"“”„«»]*)["”“»]|(?P<plain>[^{_COMMAS}"“”„«»]+)')


def read_keywords(text: str) -> Iterator[Keyword]:
    """The keywords of a text: apart by commas, or if there is none by spaces; quoted ones whole.

    What is no word, such as a dash, is passed over.
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
    from postroom.mail.terms import terms_of

    terms = tuple(terms_of(text))
    if terms:
        yield Keyword(terms, phrase)
