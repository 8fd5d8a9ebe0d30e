"""Conditions match the intended messages, and give their reasons."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from postroom.mail.text.fold import fold
from postroom.model.mail.message import MessageState, NamedAddress
from postroom.model.rule import Action, Facts, HeaderFacts
from postroom.model.view import EVERYTHING, only
from postroom.rules.matching import HeadersNeeded, why_it_matches
from postroom.rules.parser import parse_rule
from postroom.rules.planning import apply_actions, outcomes_of, queries_for

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SUBJECT, TEXT = "Ihre Rechnung Nr. 7 (Straße)", "Please pay  100 €.\nThank you"
MAIL = Facts(
    message_id="msg_1",
    inbox_id="inb_1",
    thread_id="thr_1",
    direction="inbound",
    subject=SUBJECT,
    folded_subject=fold(SUBJECT),
    senders=(NamedAddress("Ana of Supplier", "Ana.Lee@Supplier.example"),),
    to=(NamedAddress("", "bo@postroom.localhost"), NamedAddress("Cy", "cy@c.example")),
    cc=(NamedAddress("Di", "di@d.example"),),
    date=NOW - timedelta(days=10, hours=12),
    size_bytes=5_000,
    state=MessageState(labels=("Bookkeeping",), flags=("seen",)),
    text=TEXT,
    folded_text=fold(TEXT),
    files=(("Rechnung 7.PDF", "application/pdf"), ("logo.png", "image/png")),
    has_attachment=True,
    auth=("spf=pass", "dkim=pass", "dmarc=fail"),
    header_facts=HeaderFacts(
        (("X-Priority", "1 (High)"), ("X-Spam", "no"), ("X-Spam", "really")), "news.x.example"
    ),
)


def why(condition: str, facts: Facts = MAIL) -> tuple[str, ...] | None:
    rule = parse_rule(f"when: [{condition}]\nthen: [mark_read]")
    return why_it_matches(rule.when, facts, NOW)


@pytest.mark.parametrize(
    "condition",
    [
        "{subject: {contains: rechnung}}",
        "{subject: {contains: 'STRASSE'}}",
        "{subject: {equals: 'ihre  rechnung nr. 7 (strasse)'}}",
        "{subject: {matches: '*nr. ?*'}}",
        "{subject: {regex: 'Nr\\. \\d+'}}",
        "{subject: {not: {contains: invoice}}}",
        "{subject: {in: [x, 'Ihre Rechnung Nr. 7 (Straße)']}}",
        "{text: {contains: 'pay 100 €. thank'}}",
        "{text: {regex: 'pay  100'}}",
        "{from: {equals: ana.lee@supplier.example}}",
        "{from: {equals: '@SUPPLIER.example'}}",
        "{from: {equals: ana of supplier}}",
        "{from: {contains: 'lee@'}}",
        "{from: {matches: 'ana*'}}",
        "{from: {in: ['@other.example', '@supplier.example']}}",
        "{to: {equals: cy@c.example}}",
        "{to: cy@c.example}",
        "{cc: {contains: di}}",
        "{label: {equals: BOOKKEEPING}}",
        "{label: {exists: true}}",
        "{flag: {equals: seen}}",
        "{flag: [flagged, seen]}",
        "{mailbox: {equals: inbox}}",
        "{has_attachment: true}",
        "{attachment.name: {matches: '*.pdf'}}",
        "{attachment.type: {contains: image/}}",
        "{size_bytes: {greater_than: 4999, less_than: 5001}}",
        "{age_days: {greater_than: 10}}",
        "{age_days: {equals: 10}}",
        "{age_days: {less_than: 11}}",
        "{date: {after: 2026-05-22}}",
        "{date: {after: '2026-05-22T02:00:00+02:00', before: 2026-05-22T00:00:01Z}}",
        "{date: {before: 2026-05-23, not: {before: 2026-05-22}}}",
        "{list_id: {equals: news.x.example}}",
        "{header.x-priority: {contains: high}}",
        "{header.X-Spam: {equals: really}}",
        "{header.X-Other: {exists: false}}",
        "{auth: {equals: dmarc=fail}}",
        "{any: [{subject: x}, {label: {equals: bookkeeping}}]}",
        "{none: [{subject: x}, {label: {equals: y}}]}",
        "{not: {all: [{has_attachment: true}, {size_bytes: {greater_than: 9999}}]}}",
        "{subject: {contains: rechnung}, has_attachment: true}",
    ],
)
def test_a_condition_matches(condition):
    assert why(condition)
    assert why(f"{{not: {condition}}}") is None


@pytest.mark.parametrize(
    "condition",
    [
        "{subject: {equals: rechnung}}",
        "{subject: {matches: rechnung}}",
        "{subject: {regex: 'rechnung'}}",
        "{from: {equals: supplier.example}}",
        "{from: {equals: '@lee.example'}}",
        "{from: {equals: 'lee@supplier.example'}}",
        "{to: {contains: di@d.example}}",
        "{label: {equals: Book}}",
        "{flag: {equals: flagged}}",
        "{size_bytes: {greater_than: 5000}}",
        "{age_days: {less_than: 10}}",
        "{date: {after: 2026-05-22T00:00:00.5Z}}",
        "{date: {before: 2026-05-22}}",
        "{date: {after: 2026-05-23, before: 2026-06-01}}",
        "{has_attachment: false}",
        "{attachment.name: {equals: rechnung}}",
        "{list_id: {exists: false}}",
        "{any: [{subject: x}, {label: y}]}",
    ],
)
def test_a_condition_does_not_match(condition):
    assert why(condition) is None


def test_a_display_name_is_never_taken_for_an_address():
    spoofed = replace(MAIL, senders=(NamedAddress("boss@company.example", "evil@evil.example"),))

    assert why("{from: {equals: boss@company.example}}", spoofed) is None
    assert why("{from: {equals: '@company.example'}}", spoofed) is None
    assert why("{from: {in: [boss@company.example]}}", spoofed) is None


def test_the_reasons_are_the_conditions_that_matched():
    reasons = why(
        "{all: [{subject: {contains: rechnung}}, "
        "{any: [{from: {equals: '@none.example'}}, {from: {equals: '@supplier.example'}}]}, "
        "{not: {label: {equals: Paid}}}]}"
    )

    assert (
        'subject contains "rechnung"',
        'from equals "@supplier.example" (Ana.Lee@Supplier.example)',
        'not label equals "Paid"',
    ) == reasons


def test_headers_are_read_last_and_only_if_needed():
    unread = replace(MAIL, header_facts=None)

    assert why("{header.X-A: x, subject: {contains: nowhere}}", unread) is None
    with pytest.raises(HeadersNeeded):
        why("{header.X-A: x, subject: {contains: rechnung}}", unread)


def test_a_hostile_expression_takes_no_longer_than_the_text():
    """`(a|a)*b` makes a backtracking engine try 2^n paths."""
    facts = replace(MAIL, text="a" * 1_000_000)

    for pattern in ("(a|a)*b$", "(a*)*c", "(.*a){20}b", "^(a+)+$x"):
        assert why(f"{{text: {{regex: '{pattern}'}}}}", facts) is None


def test_actions_that_change_nothing_are_left_out():
    actions = [
        Action("apply_label", "bookkeeping"),
        Action("mark_read"),
        Action("flag"),
        Action("unflag"),
        Action("move", "Archive"),
        Action("archive"),
        Action("remove_label", "None"),
        Action("delete"),
    ]

    steps = apply_actions(actions, MAIL)

    assert ["flag", "unflag", "move", "delete"] == [action.type for action in steps.actions]
    assert (
        MessageState(labels=("Bookkeeping",), flags=("seen",), mailboxes=("Trash",)) == steps.state
    )


@pytest.mark.parametrize(
    ("head", "forwards", "replies"),
    [
        (HeaderFacts(), True, True),
        (HeaderFacts(is_automatic=True), True, False),
        (HeaderFacts(is_report=True), False, False),
        (HeaderFacts(is_ours=True), False, False),
    ],
)
def test_automatic_mail_is_not_answered(head, forwards, replies):
    actions = [Action("forward", "x@y.example"), Action("reply", "Thanks")]

    taken = apply_actions(actions, replace(MAIL, header_facts=head))

    expected = ["forward"] * forwards + ["reply"] * replies
    assert expected == [action.type for action in taken.actions]
    assert 2 - len(expected) == len(taken.problems)


def test_a_chain_of_rules_sees_earlier_actions_and_can_stop():
    rules = [
        parse_rule("name: a\nwhen: [{subject: {contains: rechnung}}]\nthen: [{apply_label: A}]"),
        parse_rule("name: b\nwhen: [{label: {equals: A}}]\nthen: [flag, stop]"),
        parse_rule("name: c\nwhen: [{has_attachment: true}]\nthen: [delete]"),
    ]

    outcomes = outcomes_of([(rule.name, rule) for rule in rules], MAIL, NOW)

    assert ["a", "b"] == [outcome.rule_id for outcome in outcomes.outcomes]
    assert MessageState(labels=("Bookkeeping", "A"), flags=("seen", "flagged")) == outcomes.state


def test_the_index_query_of_a_rule_has_its_conditions():
    rule = parse_rule(
        "when: [{from: {equals: '@supplier.example'}}, {subject: {contains: Invoice}}, "
        "{label: {equals: Work}}, {has_attachment: true}, {age_days: {less_than: 30}}]\n"
        "then: [archive]"
    )

    (query,) = queries_for(rule, only("inb_1"), NOW)

    assert ("@supplier.example", "invoice", ("Work",)) == (
        query.sender,
        query.subject,
        query.labels,
    )
    assert (True, NOW - timedelta(days=30), None) == (
        query.has_attachment,
        query.after,
        query.mailbox,
    )


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("{any: [{subject: {contains: a}}, {from: {equals: b@c.example}}]}", 2),
        ("{any: [{subject: {contains: a}}, {size_bytes: {greater_than: 1}}]}", 1),
        ("{not: {subject: {contains: a}}}", 1),
    ],
)
def test_alternatives_are_several_index_queries_or_none(condition, count):
    queries = queries_for(parse_rule(f"when: [{condition}]\nthen: [archive]"), EVERYTHING, NOW)

    assert count == len(queries)
    assert all((query.subject or query.sender) is not None for query in queries) == (count == 2)


def test_the_index_query_has_dates_flags_and_texts():
    rule = parse_rule(
        "when: [{date: {after: 2026-01-31, before: 2026-02-28T12:00Z}}, {age_days: "
        "{greater_than: 1}}, {flag: Seen}, {subject: {contains: a}}, {text: {contains: Due}}]\n"
        "then: [archive]"
    )

    (query,) = queries_for(rule, EVERYTHING, NOW)

    assert (datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 28, 12, tzinfo=UTC)) == (
        query.after,
        query.before,
    )
    assert (("seen",), "a", "due") == (query.flags, query.subject, query.q)
