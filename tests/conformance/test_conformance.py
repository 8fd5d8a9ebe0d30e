"""The official MCP conformance suite reports nothing but the entries of `baseline.yml`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# The suite still tests logging and sampling, which the newest revision deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")


def run_suite(url: str, revision: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scripts/conformance", url, revision],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_bare_server_of_the_sdk_conforms(bare_url, revision):
    """If this fails, check the SDK, tools.py or the baseline, not Postroom."""
    result = run_suite(bare_url, revision)

    assert 0 == result.returncode, result.stdout[-4000:] + result.stderr
    assert "Baseline check passed" in result.stdout


@pytest.mark.parametrize("revision", REVISIONS)
def test_postroom_conforms(postroom_url, revision):
    result = run_suite(postroom_url, revision)

    assert 0 == result.returncode, result.stdout[-4000:] + result.stderr
    assert "Baseline check passed" in result.stdout
