"""Long output on a terminal goes through the pager, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mails import mail
from tests.surfaces.cli.pseudo_terminal import on_a_terminal


@pytest.fixture
def long_mail(receive) -> str:
    return receive(mail(text="\n".join(f"line {n}" for n in range(200))))["message_id"]


@pytest.fixture
def recorder(tmp_path: Path) -> tuple[str, Path]:
    """A pager that records its input."""
    seen, pager = tmp_path / "seen", tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\necho "LESS=$LESS" > {seen}\ncat >> {seen}\necho paged\n')
    pager.chmod(0o755)
    return str(pager), seen


def test_output_longer_than_the_terminal_is_paged(data, long_mail, recorder):
    pager, kept = recorder

    seen = on_a_terminal(data, "message", "show", long_mail, PAGER=pager, LESS="")

    assert "paged\r\n" == seen
    assert kept.read_text().endswith("line 198\nline 199\n")


def test_less_gets_the_options_that_let_it_end_by_itself(data, long_mail, recorder, monkeypatch):
    pager, kept = recorder
    monkeypatch.delenv("LESS", raising=False)

    on_a_terminal(data, "message", "show", long_mail, PAGER=f"{pager} --option")

    assert kept.read_text().startswith("LESS=FRX\n")


def test_short_output_and_pipes_are_not_paged(data, postroom, forked, long_mail, recorder):
    pager, kept = recorder

    short = on_a_terminal(data, "inbox", "list", PAGER=pager)
    piped = forked("message", "show", long_mail, PAGER=pager)
    as_json = on_a_terminal(data, "message", "show", long_mail, "-o", "json", PAGER=pager)

    assert "bo@postroom.localhost" in short
    assert piped.out.endswith("line 199\n")
    assert "line 199" in as_json
    assert not kept.exists()


@pytest.mark.parametrize("pager", ["", "cat", "no-such-pager --x", "sh -c 'exit 127'"])
def test_without_a_pager_all_is_printed(data, long_mail, pager):
    seen = on_a_terminal(data, "message", "show", long_mail, PAGER=pager)

    assert seen.endswith("line 198\r\nline 199\r\n")


def test_quitting_the_pager_at_once_is_no_error(data, receive):
    long = receive(mail(text="word " * 200_000))["message_id"]

    seen = on_a_terminal(data, "message", "show", long, PAGER="true")

    assert "" == seen


def test_ctrl_c_is_for_the_pager(data, long_mail, tmp_path):
    pager = tmp_path / "pager"
    lines = ["#!/bin/sh", "trap 'echo told; exit 0' INT", "cat > /dev/null", "echo ready"]
    pager.write_text("\n".join([*lines, "read key < /dev/tty", ""]))
    pager.chmod(0o755)

    seen = on_a_terminal(
        data, "message", "show", long_mail, PAGER=str(pager), types={"ready": b"\x03"}
    )

    assert "told" in seen
    assert "Traceback" not in seen
    assert "interrupted" not in seen


def test_less_shows_the_beginning_and_is_left_with_q(data, long_mail):
    seen = on_a_terminal(
        data, "message", "show", long_mail, PAGER="less", rows=20, types={"line 3": b"q"}
    )

    assert "line 3" in seen
    assert "line 199" not in seen
