"""The digest of a send is stored: the same request after an upgrade is the same mail, sent once.

It covers the names of the request class and of its fields, so a rename would change it.
"""

from __future__ import annotations

import pytest

from postroom.operations.mail.unsubscribing import UnsubscribeMessage
from postroom.operations.outgoing.sending import (
    ForwardMessage,
    ReplyToMessage,
    SendEmail,
    SendMessage,
)
from postroom.sending import submission
from postroom.sending.replies import RuleMail
from postroom.sending.submission import HeldNotice, SendOptions

TO = "bo@example.org"
DIGESTS: list[tuple[SendOptions, str]] = [
    (SendEmail(inbox_id="inb_1", recipient=TO, subject="Hi", body="x"), "9b85c871f306e21d"),
    (SendMessage(inbox_id="inb_1", to=[TO], subject="Hi", body_text="x"), "9bc748ed9705c131"),
    (ReplyToMessage(message_id="msg_1", body_text="x", reply_all=True), "cbc5ffacc3dec96a"),
    (ForwardMessage(message_id="msg_1", to=[TO]), "4312acd24b706a7d"),
    (UnsubscribeMessage(message_id="msg_1"), "e6be97a8cab06f59"),
    (RuleMail(message_id="msg_1", rule_id="rul_1", value="x"), "f355ec8679744214"),
    (HeldNotice(inbox_id="inb_1"), "c289770f523a176f"),
]


@pytest.mark.parametrize(("send", "digest"), DIGESTS, ids=lambda one: type(one).__name__)
def test_a_request_has_the_digest_that_earlier_versions_stored(send: SendOptions, digest: str):
    assert digest == submission._payload(send).hex()[:16]
