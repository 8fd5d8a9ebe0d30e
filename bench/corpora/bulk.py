"""A large amount of ordinary mail: none may crash the parser or take long."""

from __future__ import annotations

import re
import time
from pathlib import Path

from bench.corpora.files import read_mbox, read_tar
from bench.corpora.scoreboard import Scoreboard
from postroom.mail.message import fingerprint


def score_bulk(folder: Path, scoreboard: Scoreboard) -> None:
    for path in sorted(folder.glob("*.xz")):
        name = path.name.split(".")[0]
        is_mbox = ".mbox" in path.name
        raws = list(read_mbox(path)) if is_mbox else [raw for _, raw in read_tar(path)]
        flagged = with_html = 0
        started = time.process_time()
        for number, raw in enumerate(raws):
            parsed = scoreboard.parse(raw, f"{name} {number}")
            if parsed is None:
                continue
            fingerprint(parsed)
            with_html += parsed.html is not None
            flagged += bool(parsed.security.hidden_text)
            if re.search(rb"(?im)^date:.*\d", raw[:20_000].partition(b"\n\n")[0]):
                has_date = parsed.date is not None
                scoreboard.score(
                    "date", f"{name} {number}", right=has_date, why=parsed.header("date")
                )
        rate = len(raws) / (time.process_time() - started)
        print(
            f"bulk       {name:26} {len(raws)} mails, {rate:.0f} a second of CPU, "
            f"hidden text in {flagged} of {with_html} with HTML"
        )


def score_files(folder: Path, scoreboard: Scoreboard) -> None:
    """Sets without expected results: nothing may crash."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".jsonl", ".json", ".md"):
            raws = read_mbox(path) if path.suffix == ".mbox" else [path.read_bytes()]
            for raw in raws:
                scoreboard.score(
                    "read", path.name, right=scoreboard.parse(raw, path.name) is not None
                )
