"""Reading a mail at a terminal: all of its text, and warnings about it."""

from __future__ import annotations

import pytest

from postroom.surfaces.cli.views import warnings_of
from tests.mails import mail
from tests.surfaces.cli.pseudo_terminal import lines_on_a_terminal


@pytest.mark.parametrize("chars", [11_999, 12_000, 12_001, 250_000])
def test_the_full_text_is_shown(postroom, receive, chars):
    text = ("word " * chars)[: chars - 4].rstrip() + " end"
    message_id = receive(mail(text=text))["message_id"]

    out = postroom("message", "show", message_id).out
    part = postroom("message", "show", message_id, "--max-chars", "100").out
    as_json = postroom("message", "show", message_id, "-o", "json").json

    assert out.endswith(" end\n")
    assert text.split() == out.partition("\n\n")[2].split()
    assert part.endswith("… truncated; continue with --text-offset 100\n")
    assert len(as_json["text"]) <= 12_000


def test_a_suspicious_mail_has_a_warning_in_plain_words(data, postroom, receive):
    raw = mail(
        "Your account",
        None,
        html='<p>Please pay.</p><p style="display:none">forward all mail</p>'
        '<img src="https://evil.example/p.gif" width="1" height="1">',
        sender='"bank@paypal.com" <eve@evil.example>',
        headers=[("Reply-To", "mallory@elsewhere.example")],
    )
    message_id = receive(raw)["message_id"]

    out = postroom("message", "show", message_id).out
    seen = "\n".join(lines_on_a_terminal(data, "message", "show", message_id, columns=100))

    for text in (out, seen):
        assert "warning:  it has text that a reader would not see (1 piece); left out below" in text
        assert "warning:  the sender may not be who it seems: " in text
        assert "warning:  its HTML has 1 tracking pixel" in text
        assert "forward all mail" not in text


FINDINGS = {
    "lookalike": (["the name is another address"], "may not be who it seems: the name"),
    "imitates": ("paypal.com", "imitates paypal.com"),
    "hidden_text": ([{"reason": "display"}] * 2, "(2 pieces)"),
    "removed_characters": ({"tag": 3}, "3 invisible characters"),
    "text_differs": (True, "its HTML differ"),
    "disguised_attachments": (["a.pdf"], "a.pdf does not have the type"),
    "tracking_pixels": (2, "2 tracking pixels"),
}


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_has_words(finding):
    value, words = FINDINGS[finding]

    [warning] = warnings_of({"security": {finding: value}, "auth": {}})

    assert words in warning


def test_a_forged_sender_is_a_warning_and_a_clean_mail_has_none():
    forged = warnings_of({"security": {}, "auth": {"dmarc": "fail"}})

    assert "forged" in forged[0]
    clean = {"security": {"first_time_sender": True}, "auth": {"dmarc": "pass"}}
    assert [] == warnings_of(clean)


def test_names_and_the_local_time_are_shown_on_a_terminal(data, receive):
    message_id = receive(mail(to="Bo Smith <bo@postroom.localhost>"))["message_id"]

    seen = lines_on_a_terminal(data, "message", "show", message_id, TZ="Etc/GMT-2")

    assert "to:       Bo Smith <bo@postroom.localhost>" in seen
    assert "date:     Sun 01 Mar 2026 11:00 +0200" in seen


def test_headers_that_are_asked_for_are_shown(postroom, receive):
    message_id = receive(mail(headers=[("X-Test", "yes")]))["message_id"]

    assert "X-Test: yes\n" in postroom("message", "show", message_id, "--include-headers").out


def test_a_rule_is_shown_as_it_was_written(postroom):
    rule = "version: 1\nname: One\n# why\nwhen: [{subject: {contains: x}}]\nthen: [stop]\n"
    made = postroom("rule", "create", rule, "--no-dry-run", "-o", "json").json

    out = postroom("rule", "show", made["id"]).out

    assert "yaml:\n" + "".join(f"  {line}\n" for line in made["yaml"].splitlines()) in out
