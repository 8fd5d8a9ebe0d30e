"""Score the mail room on a folder of real mail: `python -m bench.corpora FOLDER [set ...]`.

The folder is laid out like this, each set optional; its own README says where the mail is from:

    mime/manifest.jsonl, files/, expected/    torture mail with what its projects expect
    threading/*.mbox.xz, *.truth.json         conversations, whole and damaged
    replies/manifest.jsonl, files/            replies and what is new in them
    bounces/manifest.jsonl, bounces.tar.xz    delivery reports
    bulk/*.mbox.xz, *.tar.xz                  a lot of ordinary mail
    outlook/, imap/                           parse only

`-v` names every case that is wrong. Nothing of such a folder belongs into this project.
"""

from __future__ import annotations

import argparse
import html as entities
import json
import lzma
import re
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from postroom.mail.fingerprint import fingerprint
from postroom.mail.html import html_to_text
from postroom.mail.message import ParsedAttachment, ParsedMessage
from postroom.mail.parse import read_message
from postroom.mail.replies import split_reply
from postroom.mail.threads import (
    Candidate,
    choose_by_reference,
    choose_by_subject,
    subject_key,
    thread_keys,
)
from postroom.model.limits import Limits

LIMITS = Limits()
SLOW_S = 2.0
# What a set must reach, in percent; the others are for information.
BARS = {
    ("mime", "fully right"): 97,
    ("threading", "damaged, recall"): 99,
    ("threading", "damaged, precision"): 97,
    ("replies", "text and eml"): 75,
    ("bounces", "recognised"): 95,
    ("bounces", "hard or soft"): 90,
    ("bounces", "status"): 90,
    ("bounces", "recipient"): 95,
    ("bulk", "date"): 100,
    ("bulk", "no crash"): 100,
    ("bulk", "under 2 s"): 100,
}
Case = dict[str, Any]


subject_key_of = lru_cache(maxsize=None)(subject_key)


def read_jsonl(path: Path) -> list[Case]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def squeezed(text: str) -> str:
    """Without any white space, which is how fragments are compared."""
    return "".join(text.split())


class Board:
    """Counts what was right, and names what was not if asked to."""

    def __init__(self, name: str, *, verbose: bool) -> None:
        self.name = name
        self.verbose = verbose
        self.right: Counter[str] = Counter()
        self.all: Counter[str] = Counter()
        self.slowest = 0.0

    def score(self, what: str, case: str, *, right: bool, why: object = "") -> None:
        self.all[what] += 1
        self.right[what] += right
        if not right and self.verbose:
            print(f"  {self.name} {what}: {case}: {why}")

    def count(self, what: str, right: int, total: int) -> None:
        self.right[what] += right
        self.all[what] += total

    def parse(self, raw: bytes, case: str) -> ParsedMessage | None:
        """Read a mail without the safety net, on the clock."""
        started = time.process_time()
        try:
            return read_message(raw, LIMITS)
        except Exception as error:  # noqa: BLE001, every crash counts
            self.score("no crash", case, right=False, why=repr(error))
            return None
        finally:
            took = time.process_time() - started
            self.slowest = max(self.slowest, took)
            if took > SLOW_S:
                self.score("under 2 s", case, right=False, why=f"{took:.1f} s")

    def show(self) -> bool:
        """Print the scores; returns whether every bar is reached."""
        reached = True
        for what, total in self.all.items():
            score = 100 * self.right[what] / total
            bar = BARS.get((self.name, what))
            verdict = "" if bar is None else f"bar {bar}" if score >= bar else f"BELOW {bar}"
            reached = reached and (bar is None or score >= bar)
            print(
                f"{self.name:10} {what:26} {self.right[what]:6}/{total:<6} {score:6.2f} % {verdict}"
            )
        if self.slowest:
            print(f"{self.name:10} slowest message {self.slowest * 1000:.0f} ms of CPU")
        return reached


def score_mime(folder: Path, board: Board) -> None:
    for case in read_jsonl(folder / "manifest.jsonl"):
        parsed = board.parse((folder / case["file"]).read_bytes(), case["id"])
        path = folder / "expected" / f"{case['id']}.json"
        if parsed is None or not path.exists():
            continue
        wrong = list(mime_differences(json.loads(path.read_text()), parsed))
        board.score("fully right", case["id"], right=not wrong, why="; ".join(wrong))


def mime_differences(expected: Case, parsed: ParsedMessage) -> Iterator[str]:
    """What the project that owns the mail sees otherwise than we do."""
    simple: dict[str, tuple[object, object]] = {
        "subject": (expected.get("subject"), parsed.subject),
        "message_id": (expected.get("message_id"), parsed.internet_message_id),
        "references": (expected.get("references"), list(parsed.references)),
    }
    for key, (wanted, found) in simple.items():
        if key in expected and squeezed(str(wanted or "")) != squeezed(str(found or "")):
            yield f"{key}: wanted {wanted!r}, found {found!r}"
    if "in_reply_to" in expected and parsed.in_reply_to not in (expected["in_reply_to"] or [None]):
        yield f"in_reply_to: wanted {expected['in_reply_to']}, found {parsed.in_reply_to}"
    if expected.get("date") and datetime.fromisoformat(expected["date"]) != parsed.date:
        yield f"date: wanted {expected['date']}, found {parsed.date}"
    for role in ("from", "to", "cc"):
        if role in expected:
            yield from address_differences(role, expected[role] or [], parsed)
    yield from fragment_differences(expected, parsed)
    yield from attachment_differences(expected, parsed.attachments)


def address_differences(role: str, wanted: list[Case], parsed: ParsedMessage) -> Iterator[str]:
    found = [address for address in parsed.addresses if address.role == role]
    if [w.get("address") or "" for w in wanted] != [f.address for f in found][: len(wanted)]:
        yield f"{role}: wanted {wanted}, found {found}"
        return
    for want, got in zip(wanted, found, strict=False):
        if want.get("name") and squeezed(want["name"]) != squeezed(got.name):
            yield f"{role}: wanted {want['name']!r}, found {got.name!r}"


def fragment_differences(expected: Case, parsed: ParsedMessage) -> Iterator[str]:
    text = squeezed(parsed.text)
    html = parsed.html or ""
    stripped = squeezed(entities.unescape(re.sub(r"<[^>]*+>", "", html)))
    for fragment in expected.get("text_contains") or ():
        if squeezed(fragment) not in text:
            yield f"text lacks {fragment[:200]!r}"
    for fragment in expected.get("html_contains") or ():
        if squeezed(fragment) not in stripped:
            yield f"html lacks {fragment[:200]!r}"
    for fragment in expected.get("html_raw_contains") or ():
        if squeezed(fragment) not in squeezed(html):
            yield f"raw html lacks {fragment[:200]!r}"


def attachment_differences(expected: Case, found: tuple[ParsedAttachment, ...]) -> Iterator[str]:
    """Files that are missing; whether a nameless text is a file is a matter of taste."""
    left = list(found)
    for want in expected.get("attachments") or expected.get("attachments_include") or ():
        if not want.get("filename") and (want.get("content_type") or "text/").startswith(
            ("text/", "multipart/")
        ):
            continue
        match = next((a for a in left if is_attachment(want, a)), None)
        if match is None:
            have = [(a.filename, a.content_type, a.size) for a in left]
            yield f"attachment: wanted {want}, found {have}"
        else:
            left.remove(match)


def is_attachment(wanted: Case, found: ParsedAttachment) -> bool:
    return (
        (not wanted.get("filename") or wanted["filename"] == found.filename)
        and (not wanted.get("content_type") or wanted["content_type"] == found.content_type)
        and (wanted.get("size") is None or wanted["size"] == found.size)
        and (not wanted.get("sha256") or wanted["sha256"] == found.sha256)
    )


def read_mbox(path: Path) -> Iterator[bytes]:
    """The mails of an mboxrd file, with `>From ` put right again."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    starts = [match.start() for match in re.finditer(rb"^From ", data, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        body = data[data.index(b"\n", start) + 1 : end]
        yield re.sub(rb"^>(>*From )", rb"\1", body, flags=re.MULTILINE)


def read_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()


class Threader:
    """Threads of one inbox in memory, decided exactly as the store decides them."""

    def __init__(self) -> None:
        self.thread_of: dict[str, str] = {}
        self.threads: dict[str, list[ParsedMessage]] = {}

    def add(self, parsed: ParsedMessage) -> None:
        own_id = parsed.internet_message_id or f"none-{len(self.thread_of)}"
        keys = [*thread_keys(parsed), own_id]
        thread, merged = choose_by_reference(keys, self.thread_of)
        thread = thread or self._by_subject(parsed) or own_id
        for other in merged:
            self._merge(thread, other)
        self.thread_of |= dict.fromkeys(keys, thread)
        self.threads.setdefault(thread, []).append(parsed)

    def _by_subject(self, parsed: ParsedMessage) -> str | None:
        if parsed.date is None:
            return None
        wanted = subject_key(parsed.subject)
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

    def _merge(self, thread: str, other: str) -> None:
        self.thread_of = {k: thread if t == other else t for k, t in self.thread_of.items()}
        self.threads.setdefault(thread, []).extend(self.threads.pop(other, []))

    def ids(self) -> list[list[str]]:
        return [[m.internet_message_id or "" for m in thread] for thread in self.threads.values()]


def score_threading(folder: Path, board: Board) -> None:
    for case in read_jsonl(folder / "manifest.jsonl"):
        path = folder / case["file"]
        raws = (
            (raw for _, raw in sorted(read_tar(path))) if ".tar" in path.name else read_mbox(path)
        )
        threader = Threader()
        for number, raw in enumerate(raws):
            parsed = board.parse(raw, f"{case['set']} {number}")
            if parsed is not None:
                threader.add(parsed)
        truth = json.loads((folder / case["truth"]).read_text())["threads"]
        both, wanted, found = count_pairs(truth, threader.ids())
        name = "damaged" if "derived_from" in case else case["set"]
        board.count(f"{name}, recall", both, wanted)
        board.count(f"{name}, precision", both, found)


def count_pairs(truth: list[list[str]], found: list[list[str]]) -> tuple[int, int, int]:
    """Pairs of one thread: in both, in the truth, and in what we found."""
    true_thread = {message: n for n, thread in enumerate(truth) for message in thread}
    both = 0
    for thread in found:
        shared = Counter(true_thread[m] for m in thread if m in true_thread)
        both += sum(count * (count - 1) // 2 for count in shared.values())

    def pairs(threads: list[list[str]]) -> int:
        return sum(len(thread) * (len(thread) - 1) // 2 for thread in threads)

    return both, pairs(truth), pairs(found)


def score_replies(folder: Path, board: Board) -> None:
    for case in read_jsonl(folder / "manifest.jsonl"):
        kind = case["kind"]
        if kind == "eml":
            parsed = board.parse((folder / case["input_file"]).read_bytes(), case["id"])
            if parsed is None:
                continue
            new, signature = parsed.new_text, parsed.signature
        else:
            text = case["input"].replace("#sig#", "")
            text = html_to_text(text).text if kind == "html" else text
            reply = split_reply(text)
            new, signature = reply.new_text, reply.signature
        right = is_right_reply(case, new, signature)
        board.score(kind, case["id"], right=right, why=f"\n{new}\n~~~\n{signature}\n~~~")
        if kind in ("text", "eml"):
            board.score("text and eml", case["id"], right=right)


def is_right_reply(case: Case, new: str, signature: str) -> bool:
    with_signature = squeezed(new) + squeezed(signature)
    if case["kind"] == "signature":
        return squeezed(case["expected"].replace("#sig#", "")) == squeezed(signature)
    if case.get("expected") is not None:
        wanted = case["expected"]
        if case["kind"] == "html":
            wanted = html_to_text(wanted).text
        return squeezed(wanted) in (squeezed(new), with_signature)
    return all(squeezed(part) in with_signature for part in case.get("must_contain", ())) and all(
        squeezed(part) not in squeezed(new) for part in case.get("must_not_contain", ())
    )


_STANDARD_STATUS = re.compile(r"[245]\.\d{1,3}\.(?!9\d\d)\d{1,3}")
_FINAL = re.compile(rb"(?im)^final-recipient:\s*\S+?;\s*<?([^\s>]+)")


def score_bounces(folder: Path, board: Board) -> None:
    mails = dict(read_tar(folder / "bounces.tar.xz"))
    for case in read_jsonl(folder / "manifest.jsonl"):
        raw = mails[case["file_in_tar"]]
        parsed = board.parse(raw, case["id"])
        if parsed is not None and case.get("expected"):
            score_bounce(case, parsed, raw, board)


def score_bounce(case: Case, parsed: ParsedMessage, raw: bytes, board: Board) -> None:
    report, wanted = parsed.report, case["expected"]
    board.score("recognised", case["id"], right=report is not None, why=parsed.subject)
    recipients = report.recipients if report else ()
    hard = any(str(one["hardbounce"]) == "1" for one in wanted)
    why = f"{[(w['reason'], w['status']) for w in wanted]} {recipients}"
    board.score("hard or soft", case["id"], right=bool(report and report.hard) == hard, why=why)
    statuses = {one["status"] for one in wanted if _STANDARD_STATUS.fullmatch(one["status"])}
    if statuses:
        got = {recipient.status for recipient in recipients}
        board.score("status", case["id"], right=bool(statuses & got), why=f"{statuses} {got}")
    finals = {address.decode("utf-8", "replace").lower() for address in _FINAL.findall(raw)}
    if finals:
        got = {recipient.address.lower() for recipient in recipients}
        board.score("recipient", case["id"], right=finals <= got, why=f"{finals} {got}")


def score_bulk(folder: Path, board: Board) -> None:
    for path in sorted(folder.glob("*.xz")):
        name = path.name.split(".")[0]
        is_mbox = ".mbox" in path.name
        raws = list(read_mbox(path)) if is_mbox else [raw for _, raw in read_tar(path)]
        flagged = with_html = 0
        started = time.process_time()
        for number, raw in enumerate(raws):
            parsed = board.parse(raw, f"{name} {number}")
            if parsed is None:
                continue
            fingerprint(parsed)
            with_html += parsed.html is not None
            flagged += bool(parsed.security.hidden_text)
            if re.search(rb"(?im)^date:.*\d", raw[:20_000].partition(b"\n\n")[0]):
                has_date = parsed.date is not None
                board.score("date", f"{name} {number}", right=has_date, why=parsed.header("date"))
        rate = len(raws) / (time.process_time() - started)
        print(
            f"bulk       {name:26} {len(raws)} mails, {rate:.0f} a second of CPU, "
            f"hidden text in {flagged} of {with_html} with HTML"
        )


def score_files(folder: Path, board: Board) -> None:
    """Sets without expectations: nothing may crash."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".jsonl", ".json", ".md"):
            raws = read_mbox(path) if path.suffix == ".mbox" else [path.read_bytes()]
            for raw in raws:
                board.score("read", path.name, right=board.parse(raw, path.name) is not None)


SETS = {
    "mime": score_mime,
    "threading": score_threading,
    "replies": score_replies,
    "bounces": score_bounces,
    "bulk": score_bulk,
    "outlook": score_files,
    "imap": score_files,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="score Postroom on a folder of real mail")
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], default=[])
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    reached = True
    for name, score in SETS.items():
        folder = arguments.folder / name
        if folder.is_dir() and (not arguments.sets or name in arguments.sets):
            board = Board(name, verbose=arguments.verbose)
            score(folder, board)
            reached = board.show() and reached
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
