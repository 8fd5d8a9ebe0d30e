"""Multipart and URL-encoded forms from untrusted senders are parsed in bounded time."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from postroom.errors import Malformed, Unauthenticated
from postroom.mail.mime import forms as module
from postroom.mail.mime.forms import read_form
from postroom.ports.provider import InboundRequest
from postroom.providers import inbound_forms
from postroom.providers.inbound_forms import Mailgun

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"


def test_what_an_encoder_writes_is_read_back():
    dice = random.Random(7)
    for _ in range(300):
        fields = {
            "".join(dice.choices("ab-ü=&% +", k=5)) + str(n): bytes(
                dice.choices(b"\r\n =%+&ab\xff\x00\t_.~", k=dice.randrange(200))
            )
            for n in range(5)
        }

        assert fields == read_form(URLENCODED, urlencode(fields).encode()).fields


def test_the_parts_of_a_form_are_found():
    body = (
        b'before\r\n--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--bogus\r\n'
        b'\r\n--b\r\nContent-Disposition: form-data; name="f"; filename="a\\"b.txt"\r\n'
        b"Content-Type: text/plain\r\n\r\n\r\n--b--\r\nafter"
    )
    # A line that begins with the boundary is the boundary (RFC 2046), so writers avoid it.
    with pytest.raises(Malformed):
        read_form(MULTIPART, body)
    form = read_form(MULTIPART, body.replace(b"--bogus", b"bogus"))

    assert {"x": b"1\r\nbogus\r\n"} == form.fields
    assert [("f", 'a"b.txt', "text/plain", b"")] == [
        (f.name, f.filename, f.content_type, f.content) for f in form.files
    ]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (URLENCODED, b"&" * 500),
        (URLENCODED, b"a=\xff"),
        (URLENCODED, b"a" * 10_000 + b"=1"),
        (MULTIPART, b""),
        (MULTIPART, b"--b"),
        (MULTIPART, b"--b\r\n\r\n1"),
        (MULTIPART, b"--b\r\n\r\n1" + b"\r\n--b\r\n\r\n1" * 500 + b"\r\n--b--"),
        (MULTIPART, b"--b\r\nx: " + b"a" * 10_000 + b"\r\n\r\n1\r\n--b--"),
        (MULTIPART, b"--b\r\n" + b"a:b\r\n" * 100 + b"\r\n1\r\n--b--"),
        ("text/plain", b"a=1"),
    ],
)
def test_a_form_over_the_limits_is_refused(kind, body):
    with pytest.raises(Malformed):
        read_form(kind, body)


@pytest.mark.parametrize("kind", [URLENCODED, MULTIPART])
def test_only_requested_fields_are_read_up_to_their_limit(kind):
    def body(size):
        if kind == URLENCODED:
            return b"mail=x&token=" + b"%41" * size
        return (
            b'--b\r\nContent-Disposition: form-data; name="mail"\r\n\r\nx\r\n'
            b'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n'
            + b"A" * size
            + b"\r\n--b--"
        )

    assert {"token": b"AAA"} == read_form(kind, body(3), ["token"]).fields
    with pytest.raises(Malformed, match="too long: one of token"):
        read_form(kind, body(10_000), ["token"])


async def test_nothing_else_is_decoded_before_the_signature_is_verified(monkeypatch):
    decoded, threads = [], set()
    unquoted, read = module._percent_decoded, inbound_forms.read_form

    def watched(data):
        decoded.append(len(data))
        return unquoted(data)

    def reading(*args):
        threads.add(threading.current_thread())
        return read(*args)

    monkeypatch.setattr(module, "_percent_decoded", watched)
    monkeypatch.setattr(inbound_forms, "read_form", reading)
    body = b"timestamp=1&token=x&signature=00&body-mime=" + b"%41" * 100_000
    reader = Mailgun("key-123456", timedelta(minutes=5), leases=None)

    with pytest.raises(Unauthenticated):
        await reader.read(InboundRequest({"content-type": URLENCODED}, body, NOW))

    assert max(decoded) < 100
    assert threading.main_thread() not in threads
