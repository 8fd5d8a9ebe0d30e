"""Mail is signed with DKIM, and transmitted over verified TLS."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.operations.outgoing.sending import reply_to_message
from postroom.providers.smtp_relay import SmtpRelay, load_signer, parse_relay_url
from tests.mails import deliver, mail
from tests.pipeline.outbox_helpers import relay_worker, send
from tests.providers.test_relay import ONE, RAW, nothing
from tests.servers import dkimpy
from tests.servers.certificates import certificate
from tests.servers.relay import relaying


def signing(folder: Path) -> tuple[Callable[[bytes], bytes], bytes]:
    """A signer, and the DNS record of its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = folder / "dkim.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signer = load_signer(path, "s1", ("postroom.localhost",))
    return signer, b"v=DKIM1; k=rsa; p=" + b64encode(public)


async def test_the_signature_is_verified_by_dkimpy(
    outbox_ctx: RequestContext, tmp_path: Path
) -> None:
    signer, record = signing(tmp_path)
    async with relaying() as relay, relay_worker(outbox_ctx, relay, sign=signer):
        await send(outbox_ctx, body_text="Grüße.\n\n.dot\n\n\n", body_html="<p>x  y</p>", wait_s=10)

    [got] = relay.mails
    data = got.data.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
    assert dkimpy.verify(data, dnsfunc=lambda name, timeout=5: record)
    assert not dkimpy.verify(
        data.replace(b"Hello", b"Hallo"), dnsfunc=lambda name, timeout=5: record
    )


async def test_a_reply_to_an_international_address_is_signed(
    outbox_ctx: RequestContext, tmp_path: Path
) -> None:
    signer, record = signing(tmp_path)
    raw = mail(to="me@postroom.localhost", sender="x@example.com")
    raw = raw.replace(b"x@example.com", "jürgen@example.com".encode())
    inbox = (await outbox_ctx.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]
    asked = await deliver(outbox_ctx, inbox, raw)
    async with relaying() as relay, relay_worker(outbox_ctx, relay, sign=signer):
        given = {"message_id": asked.message_id, "body_text": "Thanks.", "wait_s": 10}
        sent = await call(outbox_ctx, reply_to_message, given)

    assert "sent" == sent.status
    assert ["jürgen@example.com"] == relay.mails[0].recipients
    data = relay.mails[0].data.removesuffix(b".\r\n")
    assert dkimpy.verify(data, dnsfunc=lambda name, timeout=5: record)


async def test_tls_is_used_and_the_certificate_must_fit(
    outbox_ctx: RequestContext, tmp_path: Path
) -> None:
    good = certificate(tmp_path / "good")
    other = certificate(tmp_path / "other")
    script = {"EHLO": b"250-x\r\n250-STARTTLS\r\n250 AUTH PLAIN", "STARTTLS": b"220 go"}
    verdicts = []
    for trusted in (good, other):
        async with relaying(script, tls=good.server()) as relay:
            url = f"smtp://u:p@localhost:{relay.port}?ca_file={trusted.cert}"
            sender = SmtpRelay(parse_relay_url(url), "x", response_s=5)
            outcomes = await sender.transmit(ONE, RAW, nothing)
            await sender.close()
            verdicts.append(outcomes["a@example.com"].result)

    assert ["sent", "deferred"] == verdicts
