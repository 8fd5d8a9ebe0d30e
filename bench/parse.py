"""How long a mail takes to read: `python -m bench.parse FILE.mbox[.xz] [count] [--profile]`.

Parsing, text, replies and the fingerprint, which is what every arriving mail pays for.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import sys
import time
from pathlib import Path

from bench.corpora.board import LIMITS
from bench.corpora.files import read_mbox
from postroom.mail.message import fingerprint
from postroom.mail.parse import read_message
from postroom.mail.text.fold import fold


def read_all(raws: list[bytes]) -> None:
    for raw in raws:
        parsed = read_message(raw, LIMITS)
        fingerprint(parsed)


def main() -> int:
    parser = argparse.ArgumentParser(description="measure how fast mail is read")
    parser.add_argument("mbox", type=Path)
    parser.add_argument("count", nargs="?", type=int, default=4_000)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    raws = list(itertools.islice(read_mbox(arguments.mbox), arguments.count))
    if arguments.profile:
        with cProfile.Profile() as profile:
            read_all(raws)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return 0
    read_all(raws[:200])
    started = time.process_time()
    read_all(raws)
    took = time.process_time() - started
    size = sum(map(len, raws)) / len(raws)
    print(f"{len(raws)} mails of {size:.0f} bytes: {len(raws) / took:.0f} a second of CPU,")
    print(f"{took / len(raws) * 1000:.3f} ms each")
    started = time.process_time()
    for raw in raws:
        fold(raw.decode("utf-8", "replace"))
    print(f"folding: {(time.process_time() - started) / len(raws) * 1000:.3f} ms each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
