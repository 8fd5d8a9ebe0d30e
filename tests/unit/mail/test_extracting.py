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
    ("x", "认证 验证码445566，请勿泄露", "445566"),
    ("x", "認証コード: 445566です", "445566"),
    ("x", "인증번호는445566입니다", "445566"),
    ("x", "code:998877", "998877"),
    ("x", "Use code=998877", "998877"),
    ("x", "Your code: abc123", "abc123"),
    ("x", "Your code is **abC12f**.", "abC12f"),
    ("x", "Your login code is:\n\nx7k9-p2q4\n", "x7k9-p2q4"),
    ("Confirm", "Your verification code:\n\n  4 8 2 9 1 3\n", "482913"),
    ("Confirm", "Your verification code: 4 8 2 9 1 3.", "482913"),
    ("Slack", "Your confirmation code is below\n\nABC-DEF\n", "ABC-DEF"),
    ("Your Slack confirmation code: ABC-DEF", "Hello", "ABC-DEF"),
    ("x", "Your code is: 2024", "2024"),
    ("Login", "Use 12345 to log in.\nValid 10 minutes", "12345"),
    ("x", "Your one-time code is 551200. It is valid until 2026.", "551200"),
    ("x", "Your code is one-time. It expires in: 10minutes.", None),
    ("x", "Security code, see https://example.com/verify?code=998877", None),
    ("x", "Verification: rate us 1 2 3 4 5", None),
    ("x", "Verify version2 of the real-time API, see room:4711", None),
    ("x", "Confirmation of your order:88213344", None),
    ("x", "Security update: TLS-RSA and SHA256 are old, UTF-8 is not", None),
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


LINKS = [
    ("Confirm: https://a.com/verify?token=abcdefghijklmnop_", "token=abcdefghijklmnop_"),
    ("Confirm: _https://a.com/verify?t=abc_", "?t=abc"),
    ("click (https://a.com/verify/abc_(x))", "/abc_(x)"),
    ("https://a.com/verify?t=[1]", "?t=[1]"),
    ("[Verify](https://a.com/verify?t=1)", "verify?t=1"),
    ("Verify [https://a.com/verify?t=1] now", "verify?t=1"),
    ("Go https://help.example.com/verify?token=abcdef\n\nhttps://example.com/", "?token=abcdef"),
    ("https://a.com/privacy/verify?token=aaaa\n\nhttps://a.com/", "?token=aaaa"),
    ("https://a.com/help/reset-password\n\nConfirm https://b.com/c?x=1", "b.com/c?x=1"),
    ("Confirm https://b.com/c\n\nhttps://a.com/help/reset-your-password", "b.com/c"),
    ("Confirm https://b.com/c\n\nhttps://a.com/confirm/unsubscribe?token=aaaa", "b.com/c"),
]


@pytest.mark.parametrize(("text", "end"), LINKS)
def test_the_link_is_found_whole(text: str, end: str) -> None:
    found = find_link(text)

    assert found is not None
    assert found.endswith(end)


def test_a_hostile_text_takes_no_time() -> None:
    assert find_code("", "1" * 1_000_000) is None
    assert find_code("", "A-" * 500_000) is None
    assert find_code("", "1 " * 500_000) is None
    assert find_code("", "code:" * 200_000 + "a1" * 500_000) is None
    assert find_link("https://" * 100_000) is not None
    assert find_link("https://a/" + "([" * 100_000) is not None
    assert find_link("https://a/help" + "/verif" * 100_000) is not None
