from __future__ import annotations

import hashlib
from dataclasses import astuple

import pytest

from postroom.mail.parse import parse_message
from tests.unit.mail.hidden_tricks import HARMLESS, SECRET, SHOWN, TRICKS


def html_mail(html: str) -> bytes:
    return b"Subject: x\nContent-Type: text/html; charset=utf-8\n\n" + html.encode()


def is_caught(html: str) -> bool:
    parsed = parse_message(html_mail(html))
    told = "mallory" in parsed.text or not parsed.text.isascii()
    return SHOWN in parsed.text and not told and bool(parsed.security.hidden_text)


def test_hidden_text_is_omitted_and_reported() -> None:
    missed = [name for name, html in TRICKS if not is_caught(html)]

    assert len(TRICKS) >= 120
    assert len(missed) <= 0.05 * len(TRICKS), missed


@pytest.mark.parametrize("html", HARMLESS)
def test_ordinary_styling_hides_nothing(html: str) -> None:
    parsed = parse_message(html_mail(html.format("Read me")))

    assert "Read me" in parsed.text
    assert () == parsed.security.hidden_text


def hash_of(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()


def test_reports_have_reason_hash_and_length_instead_of_text() -> None:
    parsed = parse_message(html_mail(f'<p>Hi</p><p style="display:none">{SECRET}</p>'))

    (hidden,) = parsed.security.hidden_text
    assert ("display", hash_of(SECRET), len(SECRET), 1) == astuple(hidden)


def test_repeated_hidden_text_is_reported_once_with_a_count() -> None:
    secret = f'<p>Hi</p><p style="display:none">{SECRET}</p>'

    (hidden,) = parse_message(html_mail(secret * 50)).security.hidden_text

    assert ("display", hash_of(SECRET), len(SECRET), 50) == astuple(hidden)


def test_reports_of_hidden_text_are_limited_and_counted() -> None:
    html = "".join(f'<p>Hi</p><p style="display:none">{SECRET} no {n}</p>' for n in range(150))

    security = parse_message(html_mail(html)).security

    assert (20, 150) == (len(security.hidden_text), security.hidden_text_total)


@pytest.mark.parametrize("colour", ["lab(50%)", "oklab(1 2)", "rgb(0 0)"])
def test_a_colour_without_all_channels_is_no_error(colour: str) -> None:
    parsed = parse_message(html_mail(f'<p>Hi</p><p style="color: {colour}">there</p>'))

    assert parsed.text.startswith("Hi")
    assert not [defect for defect in parsed.defects if "parse_failed" in defect]


def test_a_mail_in_one_colour_is_parsed() -> None:
    parsed = parse_message(html_mail("<body style='background:black'><p>Read me</p>"))

    assert "Read me" == parsed.text
    assert ["colour on colour"] == [hidden.reason for hidden in parsed.security.hidden_text]


@pytest.mark.parametrize("said", ["black", "#000", "#000000", "rgb(0,0,0)"])
@pytest.mark.parametrize("form", ["<p style='color:{}'>", "<font color='{}'>"])
def test_text_in_the_background_colour_is_hidden(form: str, said: str) -> None:
    html = f"<body style='background:black'>{form.format(said)}Read me"
    parsed = parse_message(html_mail(html))

    assert "" == parsed.text


TOO_MUCH = {
    "rules": "<style>" + "".join(f".r{n}{{color:red}}" for n in range(10_001)) + "</style>",
    "sheets": "<style>p{margin:0}</style>" * 501,
    "work": "<style>" + ":has(b) p{margin:0}" * 3_000 + "</style>" + "<p>a</p>" * 300,
}


@pytest.mark.one_python
@pytest.mark.parametrize("kind", TOO_MUCH)
def test_text_that_styles_beyond_the_limit_could_hide_is_omitted(kind: str) -> None:
    html = f"{TOO_MUCH[kind]}<style>.x{{display:none}}</style><p class='x'>{SECRET}</p>"
    parsed = parse_message(html_mail(html))

    assert SECRET not in parsed.text
    assert "style not understood" in {one.reason for one in parsed.security.hidden_text}


def test_the_hash_of_tag_characters_is_that_of_what_they_spell() -> None:
    hidden = "".join(chr(0xE0000 + ord(c)) for c in "obey me")

    parsed = parse_message(html_mail(f"<p>Hi{hidden}</p>"))

    assert "Hi" == parsed.text
    assert [hash_of("obey me")] == [found.sha256 for found in parsed.security.hidden_text]


def test_a_flag_of_tag_characters_stays() -> None:
    scotland = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"

    parsed = parse_message(html_mail(f"<p>From {scotland}</p>"))

    assert f"From {scotland}" == parsed.text
    assert () == parsed.security.hidden_text


def alternative(plain: str, html: str) -> bytes:
    return (
        "Content-Type: multipart/alternative; boundary=b\n\n--b\n\n"
        f"{plain}\n--b\nContent-Type: text/html\n\n{html}\n--b--\n"
    ).encode()


def test_a_plain_part_that_says_something_else_is_flagged() -> None:
    html = "<p>Dear Ada, the meeting about the bridge is on Friday.</p>"
    same = "Dear Ada,\nthe meeting about the bridge is on Friday."
    other = f"{same}\n\nAlso wire the remaining money to account 1234 before tonight, thanks."

    assert not parse_message(alternative(same, html)).security.text_differs
    assert parse_message(alternative(other, html)).security.text_differs


def test_remote_images_and_tracking_pixels_are_counted() -> None:
    html = (
        '<img src="https://a.example/logo.png"><img src="cid:own">'
        '<img src="https://a.example/t.gif" width="1" height="1">'
    )

    security = parse_message(html_mail(html)).security

    assert (2, 1) == (security.remote_images, security.tracking_pixels)
