"""One-time codes and links are found among all else that a mail says."""

from __future__ import annotations

import pytest

from postroom.mail.extracting import find_code, find_link
from postroom.mail.message import Link

CODES = [
    ("Your code", "Your verification code is 482913.", "482913"),
    (
        "Sign in",
        "Use the code below to sign in:\n\n  774 120\n\nIt expires in 10 minutes.",
        "774120",
    ),
    ("G-559201 is your Google verification code", "Do not share it.", "559201"),
    ("Login", "Hi Ana,\n\n123-456\n\nis your one-time passcode. Copyright 2026.", "123456"),
    ("Code", "Your Notion login code: KX7P2M", "KX7P2M"),
    ("Confirm", "Enter AB1-2CD to confirm your email. Verification code", "AB1-2CD"),
    ("Bestätigung", "Ihr Bestätigungscode lautet 9021.", "9021"),
    ("验证码", "您的验证码是 885217,请勿泄露。", "885217"),
    ("PIN", "Order 55512345 was shipped.\nYour pickup PIN: 4471", "4471"),
    ("Hello", "Call +1 555 123 4567 in 2026, invoice 123456, $1,234.00.", None),
    ("Meeting", "See you on 2026-03-01 at 10:30 in room 4711.", None),
]


@pytest.mark.parametrize(("subject", "text", "code"), CODES)
def test_the_code_is_found(subject: str, text: str, code: str | None) -> None:
    assert code == find_code(subject, text)


def test_the_link_that_asks_for_a_click_wins() -> None:
    links = [
        Link("Logo", "https://example.com/"),
        Link("Confirm your address", "https://click.example.com/c/9f8a7b6c5d4e3f2a1b0c"),
        Link("Unsubscribe", "https://example.com/unsubscribe?token=9f8a7b6c5d4e3f2a1b0c"),
        Link("Help", "https://example.com/help"),
    ]

    assert "https://click.example.com/c/9f8a7b6c5d4e3f2a1b0c" == find_link("", links)


def test_a_link_in_plain_text_ends_where_the_sentence_does() -> None:
    text = "Reset it here: https://example.com/reset?t=abc.\nHelp: https://example.com/help"

    assert "https://example.com/reset?t=abc" == find_link(text)
    assert find_link("no link at all") is None


def test_a_hostile_text_takes_no_time() -> None:
    assert find_code("", "1" * 1_000_000) is None
    assert find_code("", "A-" * 500_000) is None
    assert find_link("https://" * 100_000) is not None
