"""Conversations, complete and damaged, compared with their threads."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from bench.corpora.files import read_jsonl, read_mbox, read_tar
from bench.corpora.scoreboard import Scoreboard
from postroom.mail.message import ParsedMessage
from postroom.mail.threads import (
    SERIES_WINDOW,
    Candidate,
    Sibling,
    answered_subject,
    choose_by_reference,
    choose_by_series,
    choose_by_subject,
    series_part,
    subject_key,
    thread_keys,
)

subject_key_of = lru_cache(maxsize=None)(subject_key)


class Threader:
    """Threads of one inbox in memory, with the same decisions as the store."""

    def __init__(self) -> None:
        self.thread_of: dict[str, str] = {}
        self.threads: dict[str, list[ParsedMessage]] = {}

    def add(self, parsed: ParsedMessage) -> None:
        own_id = parsed.internet_message_id or f"none-{len(self.thread_of)}"
        keys = [*thread_keys(parsed), own_id]
        found, merged = choose_by_reference(keys, self.thread_of)
        thread = found or self._by_subject(parsed)
        series = self._by_series(parsed, thread)
        if (
            series and not keys[:-1]
        ):  # it joins the series, together with the mails that waited for it
            thread, merged = series[0], (*merged, *filter(None, [thread]))
        elif series:
            merged = (*merged, *series)
        thread = thread or own_id
        for other in merged:
            self._merge(thread, other)
        self.thread_of |= dict.fromkeys(keys, thread)
        self.threads.setdefault(thread, []).append(parsed)

    def _by_subject(self, parsed: ParsedMessage) -> str | None:
        if parsed.date is None:
            return None
        wanted = answered_subject(parsed.subject)
        candidates = [
            Candidate(
                thread,
                frozenset(m.sender.address for m in messages if m.sender),
                frozenset(address.address for m in messages for address in m.addresses),
                max(m.date or datetime.min.replace(tzinfo=UTC) for m in messages),
            )
            for thread, messages in self.threads.items()
            if any(subject_key_of(message.subject) == wanted for message in messages)
        ]
        return choose_by_subject(parsed, candidates, date=parsed.date)

    def _by_series(self, parsed: ParsedMessage, thread: str | None) -> list[str]:
        if parsed.date is None or series_part(parsed.subject) is None:
            return []
        sender = parsed.sender.address if parsed.sender else ""
        siblings = [
            Sibling(name, m.subject, bool(thread_keys(m)), m.date)
            for name, messages in self.threads.items()
            for m in messages
            if m.date and abs(m.date - parsed.date) <= SERIES_WINDOW
            and m.sender and m.sender.address == sender
        ]  # fmt: skip
        return list(choose_by_series(parsed, siblings, date=parsed.date, joined=thread))

    def _merge(self, thread: str, other: str) -> None:
        self.thread_of = {k: thread if t == other else t for k, t in self.thread_of.items()}
        self.threads.setdefault(thread, []).extend(self.threads.pop(other, []))

    def ids(self) -> list[list[str]]:
        return [[m.internet_message_id or "" for m in thread] for thread in self.threads.values()]


def score_threading(folder: Path, scoreboard: Scoreboard) -> None:
    for case in read_jsonl(folder / "manifest.jsonl"):
        path = folder / case["file"]
        raws = (
            (raw for _, raw in sorted(read_tar(path))) if ".tar" in path.name else read_mbox(path)
        )
        threader = Threader()
        for number, raw in enumerate(raws):
            parsed = scoreboard.parse(raw, f"{case['set']} {number}")
            if parsed is not None:
                threader.add(parsed)
        truth = json.loads((folder / case["truth"]).read_text())["threads"]
        both, wanted, found = count_pairs(truth, threader.ids())
        name = "damaged" if "derived_from" in case else case["set"]
        scoreboard.count(f"{name}, recall", both, wanted)
        scoreboard.count(f"{name}, precision", both, found)


def count_pairs(truth: list[list[str]], found: list[list[str]]) -> tuple[int, int, int]:
    """Pairs in one thread: in both, in the expected result, and in ours; each id counts once."""
    truth, found = _each_once(truth), _each_once(found)
    true_thread = {message: n for n, thread in enumerate(truth) for message in thread}
    both = 0
    for thread in found:
        shared = Counter(true_thread[m] for m in thread if m in true_thread)
        both += sum(count * (count - 1) // 2 for count in shared.values())

    def pairs(threads: list[list[str]]) -> int:
        return sum(len(thread) * (len(thread) - 1) // 2 for thread in threads)

    return both, pairs(truth), pairs(found)


def _each_once(threads: list[list[str]]) -> list[list[str]]:
    """The threads without ids that stood in one before."""
    seen: set[str] = set()
    once = []
    for thread in threads:
        fresh = [message for message in dict.fromkeys(thread) if message not in seen]
        seen.update(fresh)
        once.append(fresh)
    return once
