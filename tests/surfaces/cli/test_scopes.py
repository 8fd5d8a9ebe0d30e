"""The scope of keys and webhooks as shown to users: all, none, or what is named."""

from __future__ import annotations

import re

import pytest

from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.operations import keys, webhooks
from postroom.surfaces.cli.session import Session
from tests.surfaces.cli.pseudo_terminal import lines_on_a_terminal

SCOPES = ["admin", "read", "send", "write"]


def made(operation, *requests):
    """Create as over REST, where a list can be empty."""

    async def make(app):
        return [await call(app.context(OWNER), operation, one) for one in requests]

    return Session().run(make, creates=True)


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ({}, ["all", "all", "all"]),
        ({"inboxes": []}, ["none", "none", "none"]),
        ({"accounts": []}, ["none", "none", "none"]),
        ({"namespaces": []}, ["all", "all", "none"]),
        ({"namespaces": ["support"]}, ["all", "all", "support"]),
        ({"inboxes": [], "namespaces": ["a", "b"]}, ["none", "none", "a, b"]),
    ],
)
def test_a_list_of_keys_distinguishes_all_from_none(data, postroom, limits, shown):
    [key] = made(keys.create_key, {"name": "crm", "scopes": SCOPES, **limits})

    listed = postroom("key", "list")

    titles = listed.out.splitlines()[0].split("\t")
    assert ["inboxes", "accounts", "namespaces"] == titles[3:6]
    assert [[key.id, "crm", ", ".join(SCOPES), *shown]] == [row[:6] for row in listed.rows]


def test_a_key_that_names_an_inbox_sees_no_account(postroom, inbox):
    told = postroom("key", "create", "crm", "--inbox", inbox["id"]).out
    [row] = postroom("key", "list").rows

    assert [inbox["id"], "none", "none"] == row[3:6]
    lines = {line[:12].strip(): line[12:].strip() for line in told.splitlines()}
    assert (inbox["id"], "none") == (lines["inboxes"], lines["accounts"])


def test_a_list_of_keys_reads_well_on_100_columns(data, postroom, inbox):
    long = {"name": "The agent of sales and support", "scopes": SCOPES, "inboxes": [inbox["id"]]}
    every = {"name": "all", "scopes": SCOPES}
    found = made(keys.create_key, long, every, {**every, "namespaces": []})

    lines = lines_on_a_terminal(data, "key", "list", columns=100)

    rows = [re.split("  +", line) for line in lines]
    assert max(map(len, lines)) <= 100
    titles = ["id", "name", "scopes", "approval", "inboxes", "accounts", "namespaces"]
    assert titles == rows[0][:7]
    assert [key.id[4:11] for key in found] == [row[0] for row in rows[1:]]
    assert [["none", "none"], ["all", "all"], ["all", "none"]] == [row[5:7] for row in rows[1:]]


def test_a_list_of_webhooks_distinguishes_all_from_none(data, postroom, inbox):
    url = {"url": "https://example.com/x"}
    _, _, last = made(webhooks.create_webhook, url, {**url, "inboxes": [inbox["id"]]}, url)
    shown = postroom("webhook", "list").rows

    assert [["all", "all"], ["all", inbox["id"]], ["all", "all"]] == [row[3:5] for row in shown]
    assert last.id == shown[-1][0]
    postroom("inbox", "delete", inbox["id"], "--force")
    assert "none" == postroom("webhook", "list").rows[1][4]
