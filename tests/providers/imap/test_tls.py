"""TLS cannot be stripped, weakened or preceded by injected replies; no secret is sent
without it.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from postroom.errors import MailError, ProviderError
from postroom.model.imap import ImapAccount
from tests.providers.imap.conftest import account, connected, local
from tests.servers.certificates import make_certificate
from tests.servers.dovecot import PASSWORD, access_token
from tests.servers.imap_script import CAPABILITIES, scripted
from tests.servers.imaplib_client import ImapServer

STARTTLS = CAPABILITIES + " STARTTLS"
LOGIN = (b"LOGIN", b"AUTHENTICATE")


def context(
    folder: Path, *, newest: ssl.TLSVersion | None = None, **options: object
) -> ssl.SSLContext:
    """A TLS context for the server, with a self-signed certificate."""
    folder.mkdir(exist_ok=True)
    certificate, key = make_certificate(folder, **options)  # type: ignore[arg-type]
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    if newest is not None:
        made.minimum_version, made.maximum_version = ssl.TLSVersion.TLSv1, newest
        made.set_ciphers("ALL:@SECLEVEL=0")
    return made


async def login(given: ImapAccount) -> list[str]:
    """Log in and list the mailboxes."""
    async with connected(given) as live:
        found = await live.read("default", lambda session: session.mailboxes())
    return [mailbox.name for mailbox in found]


def trusting(port: int, folder: Path, **changes: object) -> ImapAccount:
    given = {"security": "tls", "ca_file": folder / "certificate.pem", **changes}
    return local(port, **given)


async def test_tls_from_the_first_byte_with_a_certificate_we_trust(tmp_path):
    async with scripted(tls=context(tmp_path)) as server:
        await login(trusting(server.port, tmp_path))

    assert any(LOGIN[0] in line for line in server.lines)


async def test_starttls_with_a_certificate_we_trust(tmp_path):
    async with scripted(tls=context(tmp_path), capabilities=STARTTLS) as server:
        await login(trusting(server.port, tmp_path, security="starttls"))

    assert [b"CAPABILITY", b"STARTTLS", b"CAPABILITY", b"LOGIN"] == [
        line.split()[1] for line in server.lines[:4]
    ]


BAD = {
    "self-signed": {},
    "for another name": {"name": "elsewhere.example", "address": "10.9.9.9"},
    "expired": {"is_expired": True},
    "too old a version": {"newest": ssl.TLSVersion.TLSv1_1},
}


@pytest.mark.parametrize("security", ["tls", "starttls"])
@pytest.mark.parametrize("fault", BAD)
async def test_a_bad_certificate_is_refused_and_no_secret_sent(tmp_path, fault, security):
    capabilities = STARTTLS if security == "starttls" else CAPABILITIES
    tls = context(tmp_path, **BAD[fault])
    trusted = tmp_path / "certificate.pem"
    if fault == "self-signed":
        trusted = make_certificate_of_another(tmp_path)
    async with scripted(tls=tls, capabilities=capabilities) as server:
        with pytest.raises(ProviderError, match=r"TLS failed|closed by the server"):
            await login(local(server.port, security=security, ca_file=trusted))

    assert not has_secret(server.lines)


def make_certificate_of_another(folder: Path) -> Path:
    other = folder / "other"
    other.mkdir()
    return make_certificate(other)[0]


def has_secret(lines: list[bytes]) -> bool:
    return any(word in line for line in lines for word in (*LOGIN, b"s3cret"))


PRELOADED = b"* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN] hello\r\n"
STRIPPED = {
    "no STARTTLS offered": {"capabilities": CAPABILITIES},
    "STARTTLS refused": {"replies": {"STARTTLS": b"{tag} NO not now\r\n"}},
    "STARTTLS as bad command": {"replies": {"STARTTLS": b"{tag} BAD what?\r\n"}},
    "greeted as logged in": {"greeting": b"* PREAUTH [CAPABILITY IMAP4rev1] hello\r\n"},
    "goodbye": {"greeting": b"* BYE go away\r\n"},
    "half a line after consent": {"replies": {"STARTTLS": b"{tag} OK go\r\n* OK half"}},
    "answers after consent": {
        "replies": {"STARTTLS": b"{tag} OK go\r\n" + PRELOADED + b"P3 OK logged in\r\n"}
    },
    "an answer in the clear": {"replies": {"STARTTLS": b"P4 OK LOGIN done\r\n{tag} OK go\r\n"}},
}


@pytest.mark.parametrize("trick", STRIPPED)
async def test_tls_cannot_be_stripped(tmp_path, trick):
    options = {"tls": context(tmp_path), "capabilities": STARTTLS, **STRIPPED[trick]}
    if trick == "no STARTTLS offered":
        options["tls"] = None
    async with scripted(**options) as server:
        with pytest.raises(MailError):
            await login(trusting(server.port, tmp_path, security="starttls"))

    assert not has_secret(server.lines)


async def test_replies_before_tls_are_discarded(tmp_path):
    early = b'* LIST () "/" Planted\r\n* 99 EXISTS\r\n* 1 FETCH (UID 1 FLAGS ())\r\n'
    replies = {"STARTTLS": early + b"{tag} OK go\r\n"}
    async with scripted(tls=context(tmp_path), capabilities=STARTTLS, replies=replies) as server:
        given = trusting(server.port, tmp_path, security="starttls")
        async with connected(given) as live:
            found = await live.read("default", lambda session: session.mailboxes())

    assert ["INBOX"] == [mailbox.name for mailbox in found]


async def test_capabilities_are_requested_again_after_tls(tmp_path):
    replies = {
        "CAPABILITY": lambda command: (
            b"* CAPABILITY IMAP4rev1 %s\r\n{tag} OK\r\n"
            % (b"STARTTLS PLANTED" if command.tag == b"P1" else b"LITERAL+")
        )
    }
    async with scripted(tls=context(tmp_path), capabilities=STARTTLS, replies=replies) as server:
        given = trusting(server.port, tmp_path, security="starttls")
        async with connected(given) as live, live.session("default") as session:
            known = session.capabilities

    assert ("IMAP4rev1", "LITERAL+") == known


async def test_on_loopback_verification_can_be_disabled(tmp_path):
    async with scripted(tls=context(tmp_path), capabilities=STARTTLS) as server:
        await login(local(server.port, security="starttls", is_unverified=True))

    assert any(LOGIN[0] in line for line in server.lines)


@pytest.mark.parametrize(
    "changes", [{"security": "none"}, {"security": "starttls", "is_unverified": True}]
)
async def test_outside_of_loopback_verification_cannot_be_disabled(monkeypatch, changes):
    monkeypatch.setattr("postroom.providers.imap.connection.Connection.peer_address", "192.0.2.1")
    async with scripted(capabilities=STARTTLS) as server:
        with pytest.raises(ProviderError, match="servers on this machine"):
            await login(local(server.port, **changes))

    assert [] == server.lines


async def test_a_login_with_a_token(dovecot):
    token = access_token("carol")
    good = account(dovecot, "carol", auth="xoauth2")
    object.__setattr__(good, "secret", token)
    bad = account(dovecot, "carol", auth="xoauth2")
    object.__setattr__(bad, "secret", token[:-4] + "AAAA")

    await login(good)
    with pytest.raises(MailError) as refused:
        await login(bad)

    assert "provider_auth" == refused.value.code
    assert token[:-4] not in str(refused.value)


async def test_starttls_with_a_real_server(server: ImapServer):
    found = await login(account(server, port=server.imap, security="starttls"))

    assert "INBOX" in found


async def test_a_password_beyond_ascii_uses_authenticate():
    given = local(0)
    object.__setattr__(given, "secret", "pässwörd")
    async with scripted(
        replies={"AUTHENTICATE": b"{tag} OK in\r\n"}, capabilities=CAPABILITIES + " SASL-IR"
    ) as server:
        object.__setattr__(given, "port", server.port)
        await login(given)

    assert any(line.split()[1:3] == [b"AUTHENTICATE", b"PLAIN"] for line in server.lines)
    assert PASSWORD
