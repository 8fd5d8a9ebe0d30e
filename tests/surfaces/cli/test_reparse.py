"""`postroom reparse` parses stored mail again."""

from __future__ import annotations

from unittest.mock import patch

from postroom.pipeline import ingest as receiving
from tests.mails import mail


def test_only_mail_of_an_older_parser_is_parsed_again(postroom, receive) -> None:
    with patch.object(receiving, "PARSER_VERSION", 0):
        old = receive(mail("Old"))["message_id"]
    receive(mail("New"))
    before = postroom("message", "show", old, "-o", "json").json

    assert {"reparsed": 1} == postroom("reparse", "-o", "json").json
    assert {"reparsed": 0} == postroom("reparse", "-o", "json").json
    assert {"reparsed": 2} == postroom("reparse", "--all", "-o", "json").json
    assert before == postroom("message", "show", old, "-o", "json").json


def test_verify_counts_the_mail_that_it_cannot_compare(postroom, receive) -> None:
    with patch.object(receiving, "PARSER_VERSION", 0):
        receive(mail("Old"))
    receive(mail("New"))

    before = postroom("verify", "-o", "json").json
    table = postroom("verify").out
    postroom("reparse")
    after = postroom("verify", "-o", "json").json

    assert (1, 1) == (before["messages"], before["outdated"])
    assert "not compared: 1, parsed by an older version; run: postroom reparse" in table
    assert 2 == after["messages"]
    assert "outdated" not in after


def test_mail_is_authenticated_with_the_current_settings(postroom, receive, monkeypatch) -> None:
    verdict = b"Authentication-Results: mx.example.org; dmarc=pass header.from=example.com\n"
    message_id = receive(verdict + mail())["message_id"]
    monkeypatch.setenv("POSTROOM_TRUSTED_SERVERS", "mx.example.org")

    before = postroom("message", "show", message_id, "-o", "json").json["auth"]
    postroom("reparse", "--all")
    after = postroom("message", "show", message_id, "-o", "json").json["auth"]

    assert ("unknown", False) == (before["dmarc"], before["aligned"])
    assert ("pass", True) == (after["dmarc"], after["aligned"])
