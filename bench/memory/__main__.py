"""Quality and speed of memory search: `python -m bench.memory [--memories 100000]`.

All times are CPU times of the whole process.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench.memory import retrieval, scale
from bench.search.measuring import table
from postroom.app import open_app
from postroom.calls.context import RequestContext
from postroom.config import read_settings
from postroom.model.key import OWNER


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.memory", description=__doc__)
    parser.add_argument("--memories", type=int, default=100_000, help="how many to search among")
    return parser.parse_args()


async def run(options: argparse.Namespace, folder: Path) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(folder)}).settings
    async with open_app(settings) as app:
        ctx = app.context(OWNER)
        await show_retrieval(ctx)
        await show_scale(ctx, folder, options.memories)


async def show_retrieval(ctx: RequestContext) -> None:
    memories, asked = retrieval.read_set()
    keywords = retrieval.keyword_questions(memories)
    await retrieval.remember(ctx, memories)
    found = {
        "in other words, by words alone": await retrieval.by_words(ctx, asked),
        "in other words, memory_search": await retrieval.hybrid(ctx, asked),
        "three of its words, memory_search": await retrieval.hybrid(ctx, keywords),
        "three of its words, memory_fulltext_search": await retrieval.by_keywords(ctx, keywords),
    }
    print(f"# {len(memories)} memories, {len(asked)} questions in other words\n")
    rows = [[name, f"{r.at_1:.2f}", f"{r.at_5:.2f}", f"{r.at_10:.2f}"] for name, r in found.items()]
    table([["question", "recall@1", "recall@5", "recall@10"], *rows])


async def show_scale(ctx: RequestContext, folder: Path, count: int) -> None:
    many = scale.GeneratedTexts(count)
    filled = await scale.fill(ctx, many)
    single, batch = await scale.embed(ctx, many)
    await scale.store_vectors(ctx, many)
    whole, again, first = await scale.ask(ctx, many)
    fts = scale.ask_fts(folder, many)
    print(f"\n# {count} memories of forty words, questions of eight: CPU\n")
    rows: list[list[object]] = [
        ["keeping a memory", f"{filled / count * 1e3:.2f} ms"],
        ["embedding it, alone", f"{single:.1f} ms"],
        ["embedding it, of sixteen", f"{batch:.1f} ms"],
        ["the first question, which reads the index", f"{first:.0f} ms"],
        ["a question", f"{whole:.1f} ms"],
        ["a question that was asked before", f"{again:.1f} ms"],
        ["FTS5: any of the words, ranked, counted", f"{fts:.1f} ms"],
        ["FTS5 takes so many times as long", f"{fts / whole:.1f}"],
    ]
    table([["what", "CPU"], *rows])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(arguments(), Path(folder)))


if __name__ == "__main__":
    main()
