"""Questions with their meaning: what a search by words and meaning is asked."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.model.memory import Vector
from postroom.model.message import MessageRow
from postroom.model.page import Found
from postroom.model.stored import MessageQuery
from postroom.operations.context import Context
from postroom.pipeline.learning import learn_mail

_MOST_TERMS = 64


@dataclass(frozen=True, slots=True)
class Meant:
    """A question as terms and, if there is a model, as a vector of it."""

    terms: tuple[str, ...]
    vector: Vector | None
    model: str


async def understand(ctx: Context, question: str) -> Meant:
    """Read a question. Raises ProviderError."""
    # Its patterns take a while to compile: not when the tools are only listed.
    from postroom.mail.terms import question_terms

    terms = tuple(question_terms(question)[:_MOST_TERMS])
    if ctx.embedder is None:
        return Meant(terms, None, "")
    [vector] = await ctx.embedder.embed([question])
    return Meant(terms, vector, ctx.embedder.model)


async def recall_mail(ctx: Context, query: MessageQuery, question: str) -> Found[MessageRow]:
    """Mail that has the words or the meaning of a question, the most relevant first."""
    await learn_mail(ctx, query)
    meant = await understand(ctx, question)
    return await ctx.store.recall_mail(query, meant.terms, vector=meant.vector, model=meant.model)
