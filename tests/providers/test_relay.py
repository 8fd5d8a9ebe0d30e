"""Each reply of a relay has one meaning, for each recipient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from postroom.config import ConfigError, Settings
from postroom.model.mail.sending import Envelope
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from postroom.wiring import make_sender
from tests.servers.relay import CUT, HANG, Part, Relay, relaying

ONE = Envelope("me@postroom.localhost", ("a@example.com",))
THREE = Envelope("me@postroom.localhost", ("a@example.com", "b@example.com", "c@example.com"))
RAW = b"From: me@postroom.localhost\r\nSubject: x\r\n\r\n.hidden dot\r\n..two\r\nend\r\n"


async def nothing(_: Sequence[str]) -> None:
    """An ignored callback."""


def sender_to(relay: Relay, url: str | None = None, **changes: Any) -> SmtpRelay:
    options = {"response_s": 1.0, "final_response_s": 1.0, **changes}
    return SmtpRelay(parse_relay_url(url or relay.url), "postroom.localhost", **options)


def by_recipient(**replies: bytes) -> Any:
    """A reply that depends on the recipient."""
    return lambda line: next(reply for name, reply in replies.items() if f"<{name}@" in line)


D, F, S, U = "deferred", "failed", "sent", "unknown"
SCRIPTS: list[tuple[str, dict[str, Any], Envelope, list[str]]] = [
    ("all is well", {}, ONE, [S]),
    ("greeting 554", {"GREETING": b"554 no service"}, ONE, [D]),
    ("greeting 421", {"GREETING": b"421 busy"}, ONE, [D]),
    ("greeting cut", {"GREETING": CUT}, ONE, [D]),
    ("greeting never", {"GREETING": HANG}, ONE, [D]),
    ("greeting garbage", {"GREETING": b"hello there"}, ONE, [D]),
    ("greeting NUL", {"GREETING": b"\0\0\0\r\n\0"}, ONE, [D]),
    ("greeting overlong", {"GREETING": b"220 " + b"x" * 70_000}, ONE, [D]),
    ("greeting multiline", {"GREETING": b"220-one\r\n220 two"}, ONE, [S]),
    ("EHLO 502, HELO works", {"EHLO": b"502 no"}, ONE, [S]),
    ("EHLO 500, HELO works", {"EHLO": b"500 no"}, ONE, [S]),
    ("EHLO and HELO 5xx", {"EHLO": b"502 no", "HELO": b"502 no"}, ONE, [D]),
    ("EHLO 421", {"EHLO": b"421 later", "HELO": b"421 later"}, ONE, [D]),
    ("EHLO cut", {"EHLO": CUT}, ONE, [D]),
    ("EHLO never", {"EHLO": HANG}, ONE, [D]),
    ("MAIL 250 multiline", {"MAIL": b"250-a\r\n250 b"}, ONE, [S]),
    ("MAIL 421", {"MAIL": b"421 going"}, ONE, [D]),
    ("MAIL 450", {"MAIL": b"450 later"}, ONE, [D]),
    ("MAIL 451", {"MAIL": b"451 later"}, THREE, [D, D, D]),
    ("MAIL 452", {"MAIL": b"452 full"}, ONE, [D]),
    ("MAIL 550", {"MAIL": b"550 no"}, THREE, [F, F, F]),
    ("MAIL 552 too large", {"MAIL": b"552 too large"}, ONE, [F]),
    ("MAIL 553", {"MAIL": b"553 no"}, ONE, [F]),
    ("MAIL 530 login first", {"MAIL": b"530 login"}, ONE, [F]),
    ("MAIL 354 is nonsense", {"MAIL": b"354 what"}, ONE, [D]),
    ("MAIL 199 is nonsense", {"MAIL": b"199 what"}, ONE, [D]),
    ("MAIL 999 is nonsense", {"MAIL": b"999 what"}, ONE, [D]),
    ("MAIL garbage", {"MAIL": b"ok then"}, ONE, [D]),
    ("MAIL cut", {"MAIL": CUT}, ONE, [D]),
    ("MAIL never", {"MAIL": HANG}, ONE, [D]),
    ("RCPT 251 forwards", {"RCPT": b"251 forwarded"}, ONE, [S]),
    ("RCPT 421", {"RCPT": b"421 going"}, THREE, [D, D, D]),
    ("RCPT 450", {"RCPT": b"450 grey"}, ONE, [D]),
    ("RCPT 451", {"RCPT": b"451 later"}, ONE, [D]),
    ("RCPT 452", {"RCPT": b"452 full"}, ONE, [D]),
    ("RCPT 550", {"RCPT": b"550 5.1.1 unknown"}, ONE, [F]),
    ("RCPT 551", {"RCPT": b"551 not here"}, ONE, [F]),
    ("RCPT 552 is too many", {"RCPT": b"552 too many"}, ONE, [D]),
    ("RCPT 553", {"RCPT": b"553 no"}, ONE, [F]),
    ("RCPT 554", {"RCPT": b"554 no"}, ONE, [F]),
    ("RCPT garbage", {"RCPT": b"\xff\xfe"}, ONE, [D]),
    ("RCPT cut", {"RCPT": CUT}, THREE, [D, D, D]),
    ("RCPT never", {"RCPT": HANG}, ONE, [D]),
    (
        "RCPT mixed",
        {"RCPT": by_recipient(a=b"250 ok", b=b"450 later", c=b"550 never")},
        THREE,
        [S, D, F],
    ),
    ("RCPT mixed, DATA 4xx", {
        "RCPT": by_recipient(a=b"250 ok", b=b"450 later", c=b"550 never"), "DOT": b"451 later",
    }, THREE, [D, D, F]),
    ("RCPT mixed, DATA 5xx", {
        "RCPT": by_recipient(a=b"250 ok", b=b"450 later", c=b"550 never"), "DOT": b"554 spam",
    }, THREE, [F, D, F]),
    ("RCPT mixed, lost after the dot", {
        "RCPT": by_recipient(a=b"250 ok", b=b"450 later", c=b"550 never"), "DOT": CUT,
    }, THREE, [U, D, F]),
    ("RCPT cut at the second", {"RCPT": by_recipient(a=b"250 ok", b=CUT)}, THREE, [D, D, D]),
    ("DATA 250 is nonsense", {"DATA": b"250 ok"}, ONE, [D]),
    ("DATA 421", {"DATA": b"421 going"}, ONE, [D]),
    ("DATA 451", {"DATA": b"451 later"}, ONE, [D]),
    ("DATA 503", {"DATA": b"503 no recipients"}, ONE, [F]),
    ("DATA 554", {"DATA": b"554 no"}, ONE, [F]),
    ("DATA cut", {"DATA": CUT}, ONE, [D]),
    ("DATA never", {"DATA": HANG}, ONE, [D]),
    ("DATA garbage", {"DATA": b"go on"}, ONE, [D]),
    ("dot 250 multiline", {"DOT": b"250-a\r\n250 b"}, ONE, [S]),
    ("dot 251", {"DOT": b"251 ok"}, ONE, [S]),
    ("dot 421", {"DOT": b"421 going"}, ONE, [D]),
    ("dot 451", {"DOT": b"451 later"}, ONE, [D]),
    ("dot 452", {"DOT": b"452 full"}, ONE, [D]),
    ("dot 550", {"DOT": b"550 no"}, ONE, [F]),
    ("dot 552", {"DOT": b"552 too large"}, ONE, [F]),
    ("dot 554", {"DOT": b"554 spam"}, THREE, [F, F, F]),
    ("dot 354 is nonsense", {"DOT": b"354 more"}, ONE, [U]),
    ("dot garbage", {"DOT": b"thanks"}, ONE, [U]),
    ("dot overlong", {"DOT": b"250 " + b"x" * 70_000}, ONE, [U]),
    ("dot NUL", {"DOT": b"\0\0\0\r\n\0"}, ONE, [U]),
    ("dot cut", {"DOT": CUT}, THREE, [U, U, U]),
    ("dot never", {"DOT": HANG}, ONE, [U]),
    ("QUIT cut", {"QUIT": CUT}, ONE, [S]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "envelope", "verdicts"),
    [pytest.param(*row[1:], id=row[0]) for row in SCRIPTS],
)
async def test_every_reply_has_its_meaning(
    script: dict[str, Any], envelope: Envelope, verdicts: list[str]
) -> None:
    async with relaying(script) as relay:
        sender = sender_to(relay)
        outcomes = await sender.transmit(envelope, RAW, nothing)
        await sender.close()

    assert verdicts == [outcomes[recipient].result for recipient in envelope.recipients]
    assert all(outcome.detail.isprintable() for outcome in outcomes.values())


@pytest.mark.parametrize("verb", ["GREETING", "EHLO", "MAIL", "RCPT", "DATA", "DOT"])
async def test_a_truncated_reply_is_never_taken_for_a_complete_one(verb: str) -> None:
    whole = {"GREETING": b"220 hi\r\n", "EHLO": b"250-a\r\n250 b\r\n", "DATA": b"354 go\r\n"}
    reply = whole.get(verb, b"250 ok\r\n")

    async def cut_at(place: int) -> str:
        async with relaying({verb: Part(reply[:place])}) as relay:
            outcomes = await sender_to(relay).transmit(ONE, RAW, nothing)
        return outcomes["a@example.com"].result

    verdicts = {await cut_at(place) for place in range(len(reply) - 1)}

    assert {U if verb == "DOT" else D} == verdicts


async def test_the_mail_arrives_unchanged_with_correct_dots_and_line_ends() -> None:
    async with relaying() as relay:
        await sender_to(relay).transmit(ONE, RAW.replace(b"\r\n", b"\n"), nothing)

    [mail] = relay.mails
    assert ("me@postroom.localhost", ["a@example.com"]) == (mail.sender, mail.recipients)
    unstuffed = mail.data.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
    assert RAW == unstuffed


async def test_a_connection_is_reused_and_replaced_when_the_relay_closed_it() -> None:
    async with relaying() as relay:
        sender = sender_to(relay)
        for _ in range(3):
            await sender.transmit(ONE, RAW, nothing)
        assert 1 == relay.connections
        relay.script = {"MAIL": lambda _: CUT if relay.connections == 1 else b"250 ok"}
        outcomes = await sender.transmit(ONE, RAW, nothing)
        await sender.close()

    assert (S, 2, 4) == (outcomes["a@example.com"].result, relay.connections, len(relay.mails))


async def test_nothing_is_sent_before_the_attempt_is_recorded() -> None:
    told: list[Sequence[str]] = []

    async def accepted(addresses: Sequence[str]) -> None:
        told.append(addresses)
        assert not [line for line in relay.lines if line == "DATA"]

    async with relaying({"RCPT": by_recipient(a=b"250 ok", b=b"450 x", c=b"550 x")}) as relay:
        await sender_to(relay).transmit(THREE, RAW, accepted)

    assert [["a@example.com"]] == told


async def test_an_unreachable_relay_is_named_with_the_error() -> None:
    for host, wrong in (
        ("127.0.0.1:1", "connection refused"),
        ("no.invalid:25", "host does not exist"),
    ):
        sender = SmtpRelay(parse_relay_url(f"smtp://{host}"), "postroom.localhost", response_s=5)
        [outcome] = (await sender.transmit(ONE, RAW, nothing)).values()

        assert D == outcome.result
        assert outcome.detail.startswith(f"no connection to the relay {host}: ")
        assert outcome.detail.endswith(wrong)


async def test_an_address_cannot_inject_a_command() -> None:
    bad = Envelope("me@x", ("a@x>\r\nRCPT TO:<evil@x", "b@x\0", "c@x\n"))
    async with relaying() as relay:
        outcomes = await sender_to(relay).transmit(bad, RAW, nothing)

    assert {F} == {outcome.result for outcome in outcomes.values()}
    assert not [line for line in relay.lines if "evil" in line]


@pytest.mark.parametrize("script", [{}, {"EHLO": b"250-x\r\n250 STARTTLS", "STARTTLS": b"454 no"}])
async def test_a_password_is_never_sent_unencrypted(script: dict[str, Any]) -> None:
    async with relaying(script) as relay:
        url = f"smtp://user:secret@127.0.0.1:{relay.port}"
        outcomes = await sender_to(relay, url).transmit(ONE, RAW, nothing)

    assert D == outcomes["a@example.com"].result
    assert not [line for line in relay.lines if line.startswith(("AUTH", "MAIL"))]


@pytest.mark.parametrize(
    ("url", "security"),
    [
        ("smtp://127.0.0.1:25", "none"),
        ("smtp://localhost:25", "none"),
        ("smtp://mail.example.com", "starttls"),
        ("smtp://u:p@127.0.0.1", "starttls"),
        ("smtp://u:p@127.0.0.1?insecure=true", "none"),
        ("smtps://mail.example.com", "tls"),
        ("smtp://127.0.0.1?ca_file=/tmp/ca.pem", "starttls"),
    ],
)
def test_only_loopback_is_used_without_tls(url: str, security: str) -> None:
    assert security == parse_relay_url(url).security


@pytest.mark.parametrize(
    "url", ["http://x", "smtp://", "smtp://mail.example.com?insecure=true", "smtp://x?other=1"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be|insecure|unknown"):
        parse_relay_url(url)


INTERNATIONAL = "From: me@x.org\r\nTo: jürgen@x.org\r\n\r\nhi\r\n".encode()


@pytest.mark.parametrize("recipient", ["jürgen@x.org", "cy@x.org"])
async def test_an_international_address_needs_smtputf8(recipient: str) -> None:
    """For any recipient: the address is in the header."""
    envelope = Envelope("me@x.org", (recipient,))
    async with relaying() as able, relaying({"EHLO": b"250-x\r\n250 8BITMIME"}) as unable:
        taken, refused = [
            await sender_to(relay).transmit(envelope, INTERNATIONAL, nothing)
            for relay in (able, unable)
        ]

    assert any(line.startswith("MAIL") and "SMTPUTF8" in line for line in able.lines)
    assert [recipient] == able.mails[0].recipients
    assert ("sent", "failed") == (taken[recipient].result, refused[recipient].result)
    assert "SMTPUTF8" in refused[recipient].detail


@pytest.mark.parametrize(
    "password",
    ["SEC#RET", "SEC/RET", "SEC?RET", "12#SECRET", "12?SECRET", "12?SECRET=1", "[SECRET"],
)
def test_a_password_that_breaks_the_url_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(ValueError, match="%23") as refused:
        parse_relay_url(f"smtp://user:{password}@mail.example.com:587")

    assert "SEC" not in str(refused.value)


def test_an_unreadable_ca_file_is_reported_at_the_start(tmp_path: Path) -> None:
    for name, words in (("missing.pem", "no such file"), ("empty.pem", "no certificate")):
        (tmp_path / "empty.pem").touch()
        url = f"smtp://mail.example.com?ca_file={tmp_path / name}"
        with pytest.raises(ConfigError, match=f"relay_url.*{words}"):
            make_sender(Settings(data_dir=tmp_path, relay_url=url))


async def test_a_deleted_ca_file_defers_each_mail(tmp_path: Path) -> None:
    url = f"smtp://mail.example.com?ca_file={tmp_path / 'gone.pem'}"
    outcomes = await SmtpRelay(parse_relay_url(url), "x").transmit(ONE, RAW, nothing)

    assert "deferred" == outcomes["a@example.com"].result
    assert "ca_file cannot be read" in outcomes["a@example.com"].detail
