"""TLS to a relay cannot be stripped, and replies injected before it are ignored."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from postroom.model.mail.sending import Outcome
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from tests.providers.test_relay import ONE, RAW, nothing
from tests.servers.certificates import Certificate, certificate
from tests.servers.relay import CUT, Relay, relaying

OFFERS = {"EHLO": b"250-relay.example\r\n250-STARTTLS\r\n250 AUTH PLAIN", "STARTTLS": b"220 go"}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("good"))


async def verdict(relay: Relay, trusted: Path | None, scheme: str = "smtp") -> str:
    return (await outcome(relay, trusted, scheme)).result


async def outcome(relay: Relay, trusted: Path | None, scheme: str = "smtp") -> Outcome:
    option = f"?ca_file={trusted}" if trusted else ""
    url = f"{scheme}://user:canary@localhost:{relay.port}{option}"
    sender = SmtpRelay(parse_relay_url(url), "x", response_s=2)
    outcomes = await sender.transmit(ONE, RAW, nothing)
    await sender.close()
    return outcomes["a@example.com"]


def received_nothing(relay: Relay) -> bool:
    """The server received neither the password nor the mail."""
    return not relay.mails and not any(line.startswith(("AUTH", "MAIL")) for line in relay.lines)


async def test_a_relay_with_our_certificate_gets_the_mail(good: Certificate) -> None:
    async with relaying(OFFERS, tls=good.server()) as relay:
        assert "sent" == await verdict(relay, good.cert)


@pytest.mark.parametrize(
    "script",
    [
        {"EHLO": b"250 relay.example"},
        {"EHLO": b"250-relay.example\r\n250 AUTH PLAIN"},
        {"EHLO": b"502 no"},
        {**OFFERS, "STARTTLS": b"454 not now"},
        {**OFFERS, "STARTTLS": b"502 what is that"},
        {**OFFERS, "STARTTLS": b"250 ok"},
        {**OFFERS, "STARTTLS": CUT},
        {"GREETING": b"220 PREAUTH relay.example", "EHLO": b"250 relay.example"},
    ],
)
async def test_without_tls_nothing_is_sent(good: Certificate, script: dict[str, Any]) -> None:
    async with relaying(script) as relay:
        assert "deferred" == await verdict(relay, good.cert)

    assert received_nothing(relay)


async def test_a_reply_that_came_before_tls_does_not_count_after_it(good: Certificate) -> None:
    injected = b"220 go\r\n250-relay.example\r\n250 AUTH PLAIN\r\n235 welcome\r\n250 ok\r\n250 ok"
    script = {**OFFERS, "STARTTLS": injected, "AUTH": b"535 no"}
    async with relaying(script, tls=good.server()) as relay:
        assert "deferred" == await verdict(relay, good.cert)

    assert not any(line.startswith("MAIL") for line in relay.lines)


@pytest.mark.parametrize("wrong", ["old", "elsewhere.example"])
async def test_a_certificate_that_is_old_or_of_another_host_is_refused(
    tmp_path: Path, wrong: str
) -> None:
    made = expired(tmp_path) if wrong == "old" else certificate(tmp_path, wrong)
    async with relaying(OFFERS, tls=made.server()) as relay:
        assert "deferred" == await verdict(relay, made.cert)

    assert received_nothing(relay)


def expired(folder: Path) -> Certificate:
    """A certificate of localhost that was good until yesterday."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=x")
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now - timedelta(9), now - timedelta(1)
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = serialization.Encoding.PEM
    files = Certificate(folder / "old.pem", folder / "old.key")
    files.cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files.key.write_bytes(key.private_bytes(pem, *plain))
    return files


async def test_an_untrusted_certificate_is_refused(good: Certificate) -> None:
    async with relaying(OFFERS, tls=good.server()) as relay:
        found = await outcome(relay, None)

    assert "deferred" == found.result
    assert "its certificate does not verify: self-signed certificate" in found.detail
    assert received_nothing(relay)


async def test_old_tls_versions_are_refused(good: Certificate) -> None:
    old = good.server()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    async with relaying(OFFERS, tls=old) as relay:
        assert "deferred" == await verdict(relay, good.cert)

    assert received_nothing(relay)


@asynccontextmanager
async def encrypted(relay: Relay, context: ssl.SSLContext) -> AsyncIterator[None]:
    """The same relay behind implicit TLS."""
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=context)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 5)


async def test_smtps_is_encrypted_from_the_first_byte(good: Certificate, tmp_path: Path) -> None:
    script = {"EHLO": b"250-relay.example\r\n250 AUTH PLAIN"}
    other = certificate(tmp_path)
    verdicts = []
    for trusted in (good, other):
        relay = Relay(script)
        async with encrypted(relay, good.server()):
            verdicts.append(await verdict(relay, trusted.cert, "smtps"))

    assert ["sent", "deferred"] == verdicts
    assert received_nothing(relay)


async def test_a_relay_without_tls_cannot_be_used_with_smtps(good: Certificate) -> None:
    async with relaying() as relay:
        assert "deferred" == await verdict(relay, good.cert, "smtps")

    assert received_nothing(relay)
