"""Readers take time linear in their input, for any repeated text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address_list, parse_mailboxes
from postroom.mail.bounces import read_deliveries, text_before_original
from postroom.mail.compose import reply_subject
from postroom.mail.dkim import check_signatures, read_keys
from postroom.mail.html.html import html_to_text, text_differs
from postroom.mail.message import parse_date, parse_in_reply_to, parse_references
from postroom.mail.mime.decoding import decode_words
from postroom.mail.mime.parts import Fields, parse_parameters
from postroom.mail.parse import read_message
from postroom.mail.quoting import split_reply
from postroom.mail.reports import is_bounce
from postroom.mail.senders import read_auth
from postroom.mail.text.display import is_inert, without_fetches
from postroom.mail.text.fold import fold
from postroom.mail.text.invisible import cleaned
from postroom.mail.threads import base_subject
from postroom.model.limits import Limits
from tests.cpu_limits import is_within

CHARS = 100_000
MAX_LOOPS = 10
LIMITS = Limits()

FRAGMENTS = (
    "=?utf-8?q?", "?=", "=?x?b?", "=3D", '"', "\\", "(", ")", "<", ">", "@", ",", ";", ":", " ",
    "\t", "\n", "\r", "a", "A", "1", ".", "-", "--", "_", "=", "%", "'", "*0*=", "*=", "[", "]",
    "On ", " wrote:", "> ", "From: ", "Sent: ", "-----", "-- \n", "Regards,\n", "10:00", "2010",
    "<p>", "</p>", "<b ", "<a href=x>", "<!--", "-->", "<style>", "{", "}", "/*", "style='", "&#",
    "<table>", "<td>", ".x ", "display:none", "color:", "rgb(", "url(", "gradient(", "<ul><li>",
    "5.1.1 ", "550 ", "user unknown", "a@b ", "Final-Recipient: a\n\n", "\u200b", "\u0301", "é",
    "\ufe0f", "\U000e0041", "Re: ", "[x] ", "begin 644 a\n", "end\n", "ignore ", "send all ", "://",
    "![", "<a/", "<img <", "<https", "<!--x-->", "\\abc", "[a=", "a1 ",
)  # fmt: skip

repeated = st.tuples(
    st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5).map("".join),
    st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
).map(lambda parts: parts[0] + parts[1] * (CHARS // len(parts[1])) + parts[2])


def typed(text: str) -> object:
    try:
        return parse_address_list(text)
    except InvalidInput:
        return None


def keys(text: str) -> object:
    try:
        return read_keys(text)
    except ValueError:
        return None


def bounced(text: str) -> object:
    fields = Fields()
    fields.add("From", "mailer-daemon@x")
    is_bounce(fields, text)
    return text_before_original(text), read_deliveries(fields, text, [text.encode()], LIMITS)


def signed(text: str) -> object:
    """A mail with a DKIM signature, with the text in the signature, a header and the body."""
    tags = f"v=1; a=rsa-sha256; c=relaxed/simple; d=x; s=s; h=from:{text[:999]}; bh=AA; b=AA"
    mail = f"DKIM-Signature: {tags}\nFrom: a@x\nX: {text}\n\n{text}".encode()
    return check_signatures(mail, {"s._domainkey.x": "p=AB"})


READERS: dict[str, Callable[[str], object]] = {
    "words": decode_words,
    "mailboxes": lambda text: parse_mailboxes(text, max_count=500),
    "typed addresses": typed,
    "parameters": parse_parameters,
    "references": lambda text: parse_references([text]),
    "in-reply-to": parse_in_reply_to,
    "date": parse_date,
    "subject": lambda text: (base_subject(text), reply_subject(text)),
    "reply": split_reply,
    "html": html_to_text,
    "invisible": cleaned,
    "display": lambda text: (without_fetches(text), is_inert(text.encode())),
    "fold": fold,
    "comparison": lambda text: text_differs(text, "some other words that are seen"),
    "verdicts": lambda text: read_auth(
        [("Authentication-Results", f"x; {text}")], trusted={"x"}, from_address="a@b"
    ),
    "signatures": signed,
    "keys": keys,
    "bounce": bounced,
    "mail": lambda text: read_message(text.encode(), LIMITS),
    "html mail": lambda text: read_message(
        b"Content-Type: multipart/alternative; boundary=b\n\n--b\n\n%b\n--b\n"
        b"Content-Type: text/html\n\n%b\n--b--" % (text.encode(), text.encode()),
        LIMITS,
    ),
}


def cpu_s(read: Callable[[str], object], text: str) -> float:
    started = time.thread_time()
    read(text)
    return time.thread_time() - started


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=settings().max_examples // 4)
@given(repeated)
def test_a_reader_takes_linear_time(name: str, text: str) -> None:
    assert is_within(MAX_LOOPS, lambda: cpu_s(READERS[name], text))


FOUND = {
    "comments before a doctype": ("html", "<!--x-->" * 100 + "<p>x"),
    "escapes in a selector": ("html", "<style>[a=" + "\\abc" * 90 + "!]{}</style><p>x"),
    "a name of digits": ("mailboxes", "a1" * 50_000 + " x"),
}
"""Texts on which a reader once took more than linear time."""


@pytest.mark.parametrize("name", FOUND)
def test_texts_that_were_slow_once_are_read_in_linear_time(name: str) -> None:
    reader, text = FOUND[name]

    assert is_within(MAX_LOOPS, lambda: cpu_s(READERS[reader], text))
