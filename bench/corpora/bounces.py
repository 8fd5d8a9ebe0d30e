"""Delivery reports, compared with the expected status of each recipient."""

from __future__ import annotations

import re
from pathlib import Path

from bench.corpora.files import Case, read_jsonl, read_tar
from bench.corpora.scoreboard import Scoreboard
from postroom.mail.message import ParsedMessage

_STANDARD_STATUS = re.compile(r"[245]\.\d{1,3}\.(?!9\d\d)\d{1,3}")
_FINAL = re.compile(rb"(?im)^final-recipient:\s*\S+?;\s*<?([^\s>]+)")


def score_bounces(folder: Path, scoreboard: Scoreboard) -> None:
    mails = dict(read_tar(folder / "bounces.tar.xz"))
    for case in read_jsonl(folder / "manifest.jsonl"):
        raw = mails[case["file_in_tar"]]
        parsed = scoreboard.parse(raw, case["id"])
        if parsed is not None and case.get("expected"):
            score_bounce(case, parsed, raw, scoreboard)


def score_bounce(case: Case, parsed: ParsedMessage, raw: bytes, scoreboard: Scoreboard) -> None:
    report, wanted = parsed.report, case["expected"]
    scoreboard.score("recognised", case["id"], right=report is not None, why=parsed.subject)
    recipients = report.recipients if report else ()
    hard = any(str(one["hardbounce"]) == "1" for one in wanted)
    why = f"{[(w['reason'], w['status']) for w in wanted]} {recipients}"
    scoreboard.score(
        "hard or soft", case["id"], right=bool(report and report.hard) == hard, why=why
    )
    statuses = {one["status"] for one in wanted if _STANDARD_STATUS.fullmatch(one["status"])}
    if statuses:
        got = {recipient.status for recipient in recipients}
        scoreboard.score("status", case["id"], right=bool(statuses & got), why=f"{statuses} {got}")
    finals = {address.decode("utf-8", "replace").lower() for address in _FINAL.findall(raw)}
    if finals:
        got = {recipient.address.lower() for recipient in recipients}
        scoreboard.score("recipient", case["id"], right=finals <= got, why=f"{finals} {got}")
