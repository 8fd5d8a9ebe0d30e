"""The CPU time of parsing a mail: `python -m bench.parse MAILS [count] [--against SRC]
[--profile]`.

It includes the text, replies and the fingerprint, as for every arriving mail. MAILS is an mbox file
(also .xz), an archive of mails (.tar.xz), or a folder with one mail to a file. SRC is the `src`
folder of another version: it parses the same mails alternately with this one, ten at a time, so
that other load affects both.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import os
import pickle
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.corpora.files import read_mbox, read_tar
from bench.corpora.scoreboard import LIMITS
from postroom.mail.message import fingerprint
from postroom.mail.parse import read_message
from postroom.mail.text.fold import fold

OWN = Path(__file__).parents[1] / "src"
ROUNDS = 20
CHUNK = 10
# Reads the mails of the file in its first argument; answers each `first end` on its input with the
# CPU seconds that these took.
_READER = """
import pickle, sys, time
from postroom.mail.message import fingerprint
from postroom.mail.parse import read_message
from postroom.model.limits import Limits
limits = Limits()
raws = pickle.load(open(sys.argv[1], "rb"))
for line in sys.stdin:
    first, end = map(int, line.split())
    started = time.process_time()
    for raw in raws[first:end]:
        fingerprint(read_message(raw, limits))
    print(time.process_time() - started, flush=True)
"""


def mails_in(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return (file.read_bytes() for file in files)
    if ".tar" in path.suffixes:
        return (raw for _, raw in read_tar(path))
    return read_mbox(path)


def read_all(raws: list[bytes]) -> None:
    for raw in raws:
        fingerprint(read_message(raw, LIMITS))


class Reader:
    """A process in which a version of the code parses mails on request."""

    def __init__(self, source: Path, raws: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _READER, raws], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(source)},
        )  # fmt: skip

    def cpu_s(self, first: int, end: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(first, end, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def compare(raws: list[bytes], against: Path) -> tuple[float, float]:
    """The CPU seconds of this version and of another: for each chunk the minimum of the rounds."""
    chunks = [(first, first + CHUNK) for first in range(0, len(raws), CHUNK)]
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump(raws, file)
        file.flush()
        readers = [Reader(source, file.name) for source in (OWN, against)]
        rounds = [
            [[reader.cpu_s(*chunk) for reader in readers] for chunk in chunks]
            for _ in range(ROUNDS + 1)
        ][1:]  # the first one warms up
        for reader in readers:
            reader.close()
    own, other = (
        sum(min(times[at][which] for times in rounds) for at in range(len(chunks)))
        for which in (0, 1)
    )
    return own, other


def main() -> int:
    parser = argparse.ArgumentParser(description="measure how fast mail is read")
    parser.add_argument("mails", type=Path)
    parser.add_argument("count", nargs="?", type=int, default=4_000)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    raws = list(itertools.islice(mails_in(arguments.mails), arguments.count))
    if arguments.profile:
        with cProfile.Profile() as profile:
            read_all(raws)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return 0
    if arguments.against:
        own, other = compare(raws, arguments.against)
        each = [f"{took / len(raws) * 1000:.3f} ms" for took in (own, other)]
        print(f"{len(raws)} mails: {each[0]} each, {each[1]} in the other version")
        print(f"{own / other:.2f} times the CPU of the other version")
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
