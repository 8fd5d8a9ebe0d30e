"""Reading the files of a set: cases, mailboxes and archives."""

from __future__ import annotations

import json
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Case = dict[str, Any]


def read_jsonl(path: Path) -> list[Case]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def squeezed(text: str) -> str:
    """A text without white space, for comparing fragments."""
    return "".join(text.split())


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
