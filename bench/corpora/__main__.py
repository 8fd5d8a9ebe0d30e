"""Score the parser on a folder of real mail: `python -m bench.corpora FOLDER [set ...]`.

The folder is laid out like this, each set optional; its own README says where the mail is from:

    mime/manifest.jsonl, files/, expected/    torture mail with what its projects expect
    threading/*.mbox.xz, *.truth.json         conversations, whole and damaged
    replies/manifest.jsonl, files/            replies and what is new in them
    bounces/manifest.jsonl, bounces.tar.xz    delivery reports
    bulk/*.mbox.xz, *.tar.xz                  a lot of ordinary mail
    outlook/, imap/                           parse only

`-v` prints every wrong case. No file of such a folder belongs into this project.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.corpora.bounces import score_bounces
from bench.corpora.bulk import score_bulk, score_files
from bench.corpora.mime import score_mime
from bench.corpora.replies import score_replies
from bench.corpora.scoreboard import Scoreboard
from bench.corpora.threads import score_threading

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
            scoreboard = Scoreboard(name, verbose=arguments.verbose)
            score(folder, scoreboard)
            reached = scoreboard.show() and reached
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
