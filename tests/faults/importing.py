"""Kill an import, and import the same file again."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.fork_starter import PYTHONPATH, ForkingStarter
from tests.faults.server_under_test import Outcome, ServerUnderTest, count_duplicates
from tests.mails import mail
from tests.servers.postroom import environment

MAILS = 20
"""The number of mails in a file that is imported, with a kill, and imported again."""
_FROM = b"From ana@example.com Fri Jan  2 03:04:05 2026\n"
_WORDS = ("--inbox", "bo@postroom.localhost", "--create", "--batch", "1", "--verbose")


def killed_while_importing(
    rounds: int, defect: str = "none", seed: int = 4, **extra: str
) -> Outcome:
    """Send SIGKILL after a random number of reported mails; then import again."""
    outcome, chance = Outcome("kill -9 while importing (mbox)"), random.Random(seed)
    with TemporaryDirectory() as name, closing(_Importer(Path(name), defect, extra)) as importer:
        for number in range(rounds):
            subjects = [f"drill {number * MAILS + n}" for n in range(MAILS)]
            importer.write(subjects)
            told = importer.run(kill_after=chance.randint(1, MAILS - 1))
            outcome.lost += len(set(subjects[:told]) - set(importer.stored()))
            importer.run(kill_after=None)
            outcome.lost += len(set(subjects) - set(importer.stored()))
            outcome.acknowledged += MAILS
            outcome.tried += 1
        outcome.doubled = count_duplicates(importer.stored())
        outcome.torn = importer.problems()
    return outcome


@dataclass
class _Importer:
    """Runs imports of one file into one installation, and counts the mails reported as stored."""

    folder: Path
    defect: str
    extra: Mapping[str, str]
    _starter: ForkingStarter = field(default_factory=ForkingStarter)

    def __post_init__(self) -> None:
        os.mkfifo(self.folder / "told")

    def write(self, subjects: list[str]) -> None:
        raws = (_FROM + mail(subject) + b"\n" for subject in subjects)
        (self.folder / "a.mbox").write_bytes(b"".join(raws))

    def run(self, kill_after: int | None) -> int:
        """Import the file; returns the number of mails reported before the kill."""
        words = [self.defect, "import", str(self.folder / "a.mbox"), *_WORDS]
        env = environment(self.folder / "data", {"PYTHONPATH": PYTHONPATH, **self.extra})
        self._starter.start("tests.faults.defects:run", words, env, self.folder / "told")
        told = 0
        with (self.folder / "told").open() as lines:
            for line in lines:
                told += line.startswith("importing: ")
                if told == kill_after:
                    self._starter.end(signal.SIGKILL)
        self._starter.wait()
        return told

    def stored(self) -> Counter[object]:
        return Counter(row[0] for row in self._installation.rows("SELECT subject FROM messages"))

    def problems(self) -> int:
        return self._installation.problems()

    @property
    def _installation(self) -> ServerUnderTest:
        return ServerUnderTest(self.folder / "data", **self.extra)

    def close(self) -> None:
        self._starter.close()
