"""Minimum quality of memory search with the bundled model."""

from __future__ import annotations

from bench.memory import retrieval
from postroom.calls.context import RequestContext


async def test_questions_in_other_words_and_keywords_find_their_memories(
    ctx: RequestContext,
) -> None:
    memories, asked = retrieval.read_set()
    keywords = retrieval.keyword_questions(memories)
    await retrieval.remember(ctx, memories)

    by_words = await retrieval.by_words(ctx, asked)
    hybrid = await retrieval.hybrid(ctx, asked)
    named = await retrieval.hybrid(ctx, keywords)
    fulltext = await retrieval.by_keywords(ctx, keywords)

    assert (150, 75) == (len(memories), len(asked))
    assert by_words.at_5 <= 0.3
    assert hybrid.at_5 >= 0.88
    assert named.at_1 >= 0.97
    assert fulltext.at_1 >= 0.97
