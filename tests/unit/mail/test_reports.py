from __future__ import annotations

import pytest

from postroom.mail.bounces import find_reason, report_recipient
from postroom.mail.message import Report
from postroom.mail.parse import parse_message


def bounce(told: str, **headers: str) -> Report:
    fields = {"From": "MAILER-DAEMON@mx.example.org", "Subject": "failure notice"} | headers
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    report = parse_message("\n".join((*lines, "", told)).encode()).report
    assert report is not None
    return report


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("550 5.1.1 <a@b.example>: User unknown", "5.1.1", "user_unknown"),
        ("550 No such user here", "", "user_unknown"),
        ("550 5.4.1 Recipient address rejected: Access denied", "5.4.1", "user_unknown"),
        ("552 5.2.2 Mailbox full", "5.2.2", "mailbox_full"),
        ("452 user is over quota", "", "mailbox_full"),
        ("550 Host unknown", "", "host_unknown"),
        ("Domain not found", "5.1.2", "host_unknown"),
        ("554 5.7.1 Message looks like spam", "5.7.1", "rejected"),
        ("550 5.7.26 Unauthenticated email", "5.7.26", "rejected"),
        ("553 5.1.8 Domain of sender address does not exist", "5.1.8", "rejected"),
        ("550 account is disabled", "", "suspended"),
        ("the address has changed", "5.1.6", "moved"),
        ("556 5.1.10 null MX", "5.1.10", "not_accepting"),
        ("message expired in the queue", "4.4.7", "expired"),
        ("something odd", "", "undefined"),
        ("550 User unknown (in reply to end of DATA command)", "5.0.0", "filtered"),
    ],
)
def test_a_reason_is_found_in_what_servers_say(said: str, status: str, reason: str) -> None:
    assert reason == find_reason(said, status)


@pytest.mark.parametrize(
    ("reason", "status", "action", "hard"),
    [
        ("user_unknown", "5.1.1", "failed", True),
        ("user_unknown", "4.1.1", "failed", False),
        ("user_unknown", "5.1.1", "delayed", False),
        ("mailbox_full", "5.2.2", "failed", False),
        ("rejected", "5.7.1", "failed", False),
    ],
)
def test_only_an_invalid_address_is_a_hard_bounce(
    reason: str, status: str, action: str, *, hard: bool
) -> None:
    assert (
        hard
        == report_recipient("a@b", action=action, status=status, diagnostic="", reason=reason).hard
    )


def test_each_address_has_its_own_status() -> None:
    report = bounce(
        "These addresses failed:\n\n<dead@b.example>:\nRemote host said: 550 5.1.1 User unknown\n\n"
        "<full@b.example>:\nRemote host said: 552 5.2.2 Mailbox full, sorry about that\n"
    )

    assert [("dead@b.example", "5.1.1", True), ("full@b.example", "5.2.2", False)] == [
        (r.address, r.status, r.hard) for r in report.recipients
    ]


def test_a_header_names_the_failed_recipients() -> None:
    report = bounce("It failed: 550 user unknown", X_Failed_Recipients="x@b.example, y@b.example")

    assert ["x@b.example", "y@b.example"] == [r.address for r in report.recipients]


def test_the_returned_mail_is_not_part_of_the_notice() -> None:
    report = bounce(
        "<a@b.example>: 550 5.1.1 user unknown\n\n--- Below this line is a copy of the message.\n\n"
        "Message-ID: <orig@x>\nSubject: mailbox full? 5.2.2\n"
    )

    assert "orig@x" == report.original_message_id
    assert ["5.1.1"] == [r.status for r in report.recipients]


def test_a_successful_delivery_is_no_bounce() -> None:
    raw = (
        b"Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status"
        b"\n\nReporting-MTA: dns; x\n\nFinal-Recipient: rfc822; a@b\nAction: delivered\n"
        b"Status: 2.0.0\n--b--"
    )

    report = parse_message(raw).report

    assert report is not None
    assert [("delivered", "2.0.0", "delivered", False)] == [
        (r.action, r.status, r.reason, r.hard) for r in report.recipients
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"From: ada@example.org\nSubject: Re: Undelivered mail\n\nDid you see the delivery fail?",
        b"From: ada@example.org\nSubject: Lunch\n\nThe letter was returned to sender.",
        b"From: postmaster@example.org\nSubject: New mail server\n\nWe moved.",
    ],
)
def test_a_mail_about_bounces_is_no_bounce(raw: bytes) -> None:
    assert parse_message(raw).report is None


@pytest.mark.parametrize(
    ("headers", "is_auto"),
    [
        ("Auto-Submitted: auto-generated", True),
        ("Auto-Submitted: auto-replied; owner-email=x", True),
        ("Auto-Submitted: no", False),
        ("Precedence: bulk", True),
        ("Return-Path: <>", True),
        ("Precedence: junk", True),
        ("List-Id: <a.b>", True),
        ("List-Unsubscribe: <mailto:a@b>", True),
        ("X-Loop: a@b", True),
        ("X-Auto-Response-Suppress: All", False),
        ("X-Auto-Response-Suppress: None", False),
        ("X-Autoreply: yes", True),
        ("Subject: Out of office: Ada", True),
        ("Subject: Lunch", False),
    ],
)
def test_automatic_mail_is_recognised(headers: str, *, is_auto: bool) -> None:
    assert is_auto == parse_message(f"From: a@b\n{headers}\n\nHi".encode()).auto_submitted


@pytest.mark.parametrize(
    "header",
    [
        "Auto-Submitted: auto-replied (vacation)",
        "List-Post: <mailto:x@y.example>",
        "List-Owner: <mailto:x@y.example>",
        "X-Mailing-List: a",
        "X-Loop: me@postroom.localhost",
        "From: Mail Delivery <MAILER-DAEMON@b.example>",
        "Return-Path: <>",
        "Precedence: bulk",
    ],
)
def test_automatic_mail_is_recognised_by_its_headers(header: str) -> None:
    assert parse_message(f"{header}\nSubject: x\n\nHi".encode()).auto_submitted


@pytest.mark.parametrize(
    "header", ["Auto-Submitted: (a person) no", "From: mailer-daemon-fan@b.example", "X-Listen: 1"]
)
def test_mail_from_a_person_is_not_automatic(header: str) -> None:
    assert not parse_message(f"{header}\nSubject: x\n\nHi".encode()).auto_submitted
