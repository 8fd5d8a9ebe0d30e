"""Drafts, the outbox, webhooks and events at the terminal."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from tests.mails import mail
from tests.servers.postroom import command, environment

OUTGOING = ("--to", "ana@example.com", "--subject", "Plan", "--body-text", "Let us meet.")
NOWHERE = "smtp://127.0.0.1:9"
"""An unreachable relay: mail stays queued."""


def test_a_draft_is_written_changed_sent_and_gone(postroom, inbox):
    made = postroom("draft", "create", *OUTGOING, "-o", "json").json
    postroom("draft", "update", made["id"], "--subject", "Better plan")
    shown = postroom("draft", "show", made["id"], "-o", "json").json
    listed = postroom("draft", "list", "-o", "json").json
    sent = postroom("draft", "send", made["id"], "-o", "json").json
    left = postroom("draft", "list", "-o", "json").json

    assert ("Better plan", ["ana@example.com"]) == (shown["subject"], shown["to"])
    assert ([made["id"]], 0) == ([row["id"] for row in listed["results"]], left["total"])
    assert "captured" == sent["status"]


def test_a_draft_for_later_waits_in_the_outbox_and_can_be_stopped(postroom, inbox):
    later = f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%d}"
    made = postroom("draft", "create", *OUTGOING, "--send-at", later, "-o", "json").json
    sent = postroom("draft", "send", made["id"], "-o", "json").json
    waiting = postroom("outbox", "list", "scheduled", "-o", "json").json
    stopped = postroom("outbox", "cancel", sent["message_id"], "-o", "json").json
    again = postroom("outbox", "cancel", sent["message_id"])
    told = postroom("draft", "list", "-o", "json").json

    assert ("scheduled", "failed") == (sent["status"], stopped["status"])
    assert [sent["message_id"]] == [row["message_id"] for row in waiting["results"]]
    assert (made["id"], sent["send_at"]) == (stopped["draft_id"], f"{later}T00:00:00Z")
    assert [made["id"]] == [row["id"] for row in told["results"]]
    assert (3, True) == (again.code, "no message" in again.err)


def test_the_outbox_is_paused_listed_retried_and_resumed(postroom, inbox, monkeypatch):
    monkeypatch.setenv("POSTROOM_RELAY_URL", NOWHERE)
    paused = postroom("outbox", "pause", "-o", "json").json
    sent = postroom("send", *OUTGOING, "-o", "json").json
    listed = postroom("outbox", "list", "-o", "json").json
    retried = postroom("outbox", "retry", sent["message_id"], "-o", "json").json
    resumed = postroom("outbox", "resume", "-o", "json").json

    assert (True, False) == (paused["is_paused"], resumed["is_paused"])
    assert ("queued", "queued") == (sent["status"], retried["status"])
    assert [sent["message_id"]] == [row["message_id"] for row in listed["results"]]
    assert 1 == resumed["waiting"]


def test_a_webhook_is_created_renewed_shown_and_deleted(postroom, inbox, receive):
    made = postroom("webhook", "create", "https://example.com/hook", "-o", "json").json
    renewed = postroom("webhook", "renew", made["id"], "-o", "json").json
    listed = postroom("webhook", "list", "-o", "json")
    receive(mail("To be told"))
    told = postroom("webhook", "deliveries", made["id"], "-o", "json").json
    gone = postroom("webhook", "delete", made["id"])

    assert made["secret"].startswith("whsec_")
    assert made["secret"] != renewed["secret"]
    assert "whsec_" not in listed.out
    assert 1 == told["total"]
    assert (0, 0) == (gone.code, postroom("webhook", "list", "-o", "json").json["total"])


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "ftp://example.com/"])
def test_a_webhook_that_could_lead_into_the_local_network_is_refused(postroom, url):
    refused = postroom("webhook", "create", url)

    assert (2, True) == (refused.code, "url" in refused.err)


def test_events_are_listed_oldest_first(postroom, inbox, receive):
    for subject in ("One", "Two"):
        receive(mail(subject))

    page = postroom("events", "list", inbox["id"], "-o", "json").json

    assert ["One", "Two"] == [row["data"]["subject"] for row in page["results"]]


def test_tail_shows_events_of_other_processes(data, postroom, inbox, receive):
    added = receive(mail("Before"))
    tail = subprocess.Popen(
        command("events", "tail", "--since", "evt_0", "-o", "json"),
        env=environment(data),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        first = json.loads(tail.stdout.readline())
        receive(mail("While it listens"))
        second = json.loads(tail.stdout.readline())
    finally:
        tail.terminate()
        tail.wait(120)

    assert added["message_id"] == first["message_id"]
    assert ["Before", "While it listens"] == [e["data"]["subject"] for e in (first, second)]
