from __future__ import annotations

import resource
import subprocess
import sys
import time

import pytest

from postroom.mail.message import fingerprint
from postroom.mail.parse import read_message
from postroom.model.limits import Limits
from tests.cpu_limits import is_within
from tests.unit.mail.hostile import HOSTILE

pytestmark = pytest.mark.one_python

MAX_LOOPS = 30
MEMORY_MB = 200
# Known to exhaust other parsers; each is measured in a process of its own.
FAMOUS = (
    "100,000 empty parts",
    "20,000 addresses",
    "1,500 levels",
    "0.3 MB of encoded words",
    "a line of 10 MB",
    "text nodes",
)
MEASURE = """
import re, sys
from pathlib import Path
from postroom.mail.parse import parse_message
from tests.unit.mail.hostile import HOSTILE
raw = HOSTILE[sys.argv[1]]()
parsed = parse_message(raw)
# Not ru_maxrss: a child starts with its parent's.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_mail_is_read_in_time(name: str) -> None:
    raw = HOSTILE[name]()

    assert is_within(MAX_LOOPS, lambda: cpu_s(raw))


def cpu_s(raw: bytes) -> float:
    started = time.thread_time()
    message = read_message(raw, Limits())
    fingerprint(message)
    spent_s = time.thread_time() - started
    assert len(raw) == message.size_bytes
    return spent_s


@pytest.mark.parametrize("name", FAMOUS)
def test_hostile_mail_stays_small(name: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, name],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),
    )

    assert int(result.stdout) < MEMORY_MB


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("100,000 empty parts", "more than 500 MIME parts; the rest was not read"),
        ("20,000 addresses", "more than 500 addresses in to"),
        ("1,500 levels", "parts nested over 20 levels; the rest was not read"),
        ("a million headers", "more than 1000 header fields; the rest was not read"),
        ("a header of 10 MB", "header block over 262144 bytes; the rest was not read"),
        ("a line of 10 MB", "text over 1048576 characters; the rest was not stored"),
        ("divs", "HTML nested too deeply"),
        ("many rules for one class", "HTML styles over the limits; text counts as hidden"),
        ("a deep tree with styles", "HTML styles over the limits; text counts as hidden"),
    ],
)
def test_a_limit_that_truncated_is_reported(name: str, defect: str) -> None:
    assert defect in read_message(HOSTILE[name](), Limits()).defects
