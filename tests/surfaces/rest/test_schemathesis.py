"""The OpenAPI document is correct: schemathesis finds no problem with all of its checks.

`make fuzz` looks harder: at every way to break each limit of the schema (the cases marked `long`),
and with `SCHEMATHESIS_EXAMPLES=50`. `SCHEMATHESIS_SEED=7` looks elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from postroom.surfaces.rest.server import build

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "2")
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
PROGRAM = shutil.which("schemathesis", path=str(Path(sys.executable).parent))

CONFIG = """
# JSON Schema has no words for a time to come: one that is over is refused.
[[operations]]
include-operation-id = [
  "memory_add", "memory_update", "send_message", "reply_to_message", "forward_message",
  "create_draft", "update_draft", "create_key", "update_key",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

# Nor for a name that is not the one in the path.
[[operations]]
include-operation-id = ["rename_label"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

# Nor for an address of a network that is not public; test_webhook_urls.py looks at the rest.
[[operations]]
include-operation-id = ["create_webhook", "update_webhook"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
"""


@pytest.mark.parametrize(
    ("phases", "mode"),
    [
        ("coverage", "positive"),
        pytest.param("coverage", "negative", marks=pytest.mark.long),
        ("examples,fuzzing,stateful", "all"),
    ],
)
async def test_schemathesis_finds_nothing(app, key, serving, tmp_path, phases, mode):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    async with serving(build(app)) as port:
        process = await asyncio.create_subprocess_exec(
            *(str(PROGRAM), "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", "all"),
            *("--phases", phases, "--mode", mode, "--max-examples", EXAMPLES, "--seed", SEED),
            *("--no-color", "--suppress-health-check", "too_slow"),  # on a busy machine
            *("--header", f"Authorization: Bearer {key}"),
            # These two respond when an event happens, and none does here.
            *("--exclude-path", "/v1/events/stream", "--exclude-path", "/v1/messages/wait"),
            # JSON Schema cannot describe a rule in YAML.
            *("--exclude-operation-id", "create_rule"),
            # This one connects to any given host.
            *("--exclude-operation-id", "add_account"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()

    report = output.decode()
    assert 0 == process.returncode, report
    assert " passed" in report
