"""Downloads: exact bytes, safe names, and no content that a browser would run."""

from __future__ import annotations

import dataclasses
import hashlib
from base64 import b64decode

import httpx2
import pytest

from postroom.blobs.objects import ObjectBlobs
from postroom.model.view import EVERYTHING
from postroom.surfaces.http import safe_media_type
from tests.mails import deliver, mail, new_inbox
from tests.servers import s3
from tests.surfaces.rest.conftest import rest_client


async def attachment_of(rest, ctx, inbox, filename, content_type, content):
    raw = mail(attachments=[(filename, content_type, content)])
    added = await deliver(ctx, inbox, raw)
    message = await rest.get(f"/v1/messages/{added.message_id}")
    return message["attachments"][0]


@pytest.mark.parametrize(
    ("filename", "plain", "coded"),
    [
        ("invoice.pdf", "invoice.pdf", None),
        ("报告.pdf", ".pdf", "%E6%8A%A5%E5%91%8A.pdf"),
        ("café.txt", "cafe.txt", "caf%C3%A9.txt"),
        ('a"b.txt', "a_b.txt", None),
        ("../../etc/passwd", "passwd", None),
        ("C:\\Windows\\evil.exe", "evil.exe", None),
        ("a;b.txt", "a_b.txt", "a%3Bb.txt"),
    ],
)
async def test_an_attachment_is_saved_under_a_safe_name(rest, ctx, inbox, filename, plain, coded):
    held = await attachment_of(rest, ctx, inbox, filename, "application/pdf", b"bytes")

    response = await rest.send("GET", f"/v1/attachments/{held['id']}/content")

    disposition = response.headers["content-disposition"]
    assert disposition.startswith("attachment; ")
    assert f'filename="{plain}"' in disposition
    assert (coded is None) == ("filename*=" not in disposition)
    assert coded is None or f"filename*=UTF-8''{coded}" in disposition


@pytest.mark.parametrize("name", ["a\r\nSet-Cookie: x=1.txt", "a\x00b.txt", "a\u202etxt.exe"])
async def test_a_file_name_cannot_inject_headers(rest, inbox, name):
    raw = (
        b"From: a@example.com\r\nContent-Type: text/plain\r\n"
        b"Content-Disposition: attachment;\r\n filename*=UTF-8''"
        + "".join(f"%{byte:02X}" for byte in name.encode()).encode()
        + b"\r\n\r\nhello"
    )
    received = await rest.ask("POST", f"/v1/inbound?recipient={inbox.address}", content=raw)
    message = await rest.get(f"/v1/messages/{received['message_id']}")

    response = await rest.send("GET", f"/v1/attachments/{message['attachments'][0]['id']}/content")

    assert 200 == response.status_code
    assert "set-cookie" not in response.headers
    assert response.headers["content-disposition"].isprintable()


async def test_a_download_has_the_bytes_and_their_number(rest, ctx, inbox):
    content = bytes(range(256)) * 20_000
    held = await attachment_of(rest, ctx, inbox, "a.bin", "application/x-thing", content)

    response = await rest.send("GET", f"/v1/attachments/{held['id']}/content")

    assert held["sha256"] == hashlib.sha256(response.content).hexdigest()
    assert str(len(content)) == response.headers["content-length"]
    assert "application/x-thing" == response.headers["content-type"]


async def test_a_download_is_inert(rest, ctx, inbox):
    held = await attachment_of(rest, ctx, inbox, "a.html", "text/html", b"<script>1</script>")

    headers = (await rest.send("GET", f"/v1/attachments/{held['id']}/content")).headers

    assert "nosniff" == headers["x-content-type-options"]
    assert headers["content-security-policy"].startswith("sandbox")
    assert headers["content-disposition"].startswith("attachment")


async def test_head_tells_the_same_without_the_bytes(rest, message_id):
    for path in (f"/v1/messages/{message_id}/raw", f"/v1/messages/{message_id}", "/docs"):
        whole = await rest.send("GET", path)
        head = await rest.send("HEAD", path)

        assert b"" == head.content
        for name in ("content-type", "content-length", "content-security-policy"):
            assert whole.headers[name] == head.headers[name]


async def test_the_source_of_a_message_is_what_came(rest, inbox):
    raw = b"From: a@example.com\nSubject: odd\r\n\r\n\x00\xff"
    received = await rest.ask("POST", f"/v1/inbound?recipient={inbox.address}", content=raw)

    response = await rest.send("GET", f"/v1/messages/{received['message_id']}/raw")

    assert raw == response.content
    assert "message/rfc822" == response.headers["content-type"]
    assert f'filename="{received["message_id"]}.eml"' in response.headers["content-disposition"]


async def test_the_content_comes_as_base64_if_asked_for(rest, ctx, inbox):
    held = await attachment_of(rest, ctx, inbox, "a.bin", "application/x-thing", b"0123456789")
    path = f"/v1/attachments/{held['id']}/content"

    whole = await rest.get(path, format="base64")
    part = await rest.get(path, format="base64", offset=2, max_bytes=3)

    assert b"0123456789" == b64decode(whole["content"])
    assert ("a.bin", "application/x-thing") == (whole["filename"], whole["content_type"])
    assert (b"234", 5) == (b64decode(part["content"]), part["next_offset"])


@pytest.mark.parametrize(
    "query", ["format=hex", "format=", "format=base64&format=base64", "offset=2", "max_bytes=2"]
)
async def test_another_format_is_refused(rest, ctx, inbox, query):
    held = await attachment_of(rest, ctx, inbox, "a.bin", "application/x-thing", b"0123456789")

    problem = await rest.problem("GET", f"/v1/attachments/{held['id']}/content?{query}")

    assert 422 == problem["status"]


async def test_missing_bytes_are_not_found(rest, ctx, inbox):
    held = await attachment_of(rest, ctx, inbox, "a.bin", "application/x-thing", b"0123456789")
    await ctx.blobs.discard([held["sha256"]], used=nothing)

    problem = await rest.problem("GET", f"/v1/attachments/{held['id']}/content")

    assert 404 == problem["status"]


async def nothing(_keys):
    return frozenset()


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("Text/Plain", "text/plain"),
        ("text/plain\r\nSet-Cookie: a=b", "application/octet-stream"),
        ("", "application/octet-stream"),
        ("text", "application/octet-stream"),
        ("text/html; charset=utf-7", "application/octet-stream"),
    ],
)
def test_only_valid_content_types_are_used(stated, told):
    assert told == safe_media_type(stated)


@pytest.fixture
def bucket_app(app):
    """The same installation with its mail in a bucket."""
    with s3.running() as bucket:
        services = dataclasses.replace(app.services, blobs=ObjectBlobs(bucket))
        yield dataclasses.replace(app, services=services)


async def test_a_link_gives_the_bytes_without_a_key(bucket_app, key):
    inbox = await new_inbox(bucket_app.services)
    raw = mail(attachments=[("bill.pdf", "application/pdf", b"%PDF")])
    added = await deliver(bucket_app.services, inbox, raw)
    async with rest_client(bucket_app, key) as rest, httpx2.AsyncClient(timeout=60) as anyone:
        message = await rest.get(f"/v1/messages/{added.message_id}")
        held = message["attachments"][0]

        file = await rest.get(f"/v1/attachments/{held['id']}/link", lasting_s=60)
        source = await rest.get(f"/v1/messages/{added.message_id}/link")

        assert b"%PDF" == (await anyone.get(file["url"])).content
        assert raw == (await anyone.get(source["url"])).content
    assert ("bill.pdf", "application/pdf", 4) == (
        file["filename"], file["content_type"], file["size"],
    )  # fmt: skip
    assert (f"{added.message_id}.eml", "message/rfc822", len(raw)) == (
        source["filename"], source["content_type"], source["size"],
    )  # fmt: skip
    assert file["expires_at"] < source["expires_at"]


async def test_a_link_to_what_is_missing_is_refused(bucket_app, key):
    added = await deliver(bucket_app.services, await new_inbox(bucket_app.services), mail())
    stored = await bucket_app.services.store.message(added.message_id, EVERYTHING)
    await bucket_app.services.blobs.discard([stored.raw], none_of_them)

    async with rest_client(bucket_app, key) as rest:
        problem = await rest.problem("GET", f"/v1/messages/{added.message_id}/link")

    assert (404, "not_found") == (problem["status"], problem["code"])


async def none_of_them(_keys):
    return frozenset()


@pytest.mark.parametrize("seconds", [0, 3601])
async def test_a_link_lasts_an_hour_at_most(rest, message_id, seconds):
    problem = await rest.problem("GET", f"/v1/messages/{message_id}/link?lasting_s={seconds}")

    assert 422 == problem["status"]


async def test_links_without_a_bucket_are_refused_with_a_remedy(rest, message_id):
    problem = await rest.problem("GET", f"/v1/messages/{message_id}/link")

    assert (404, "feature_disabled") == (problem["status"], problem["code"])
    assert "POSTROOM_BLOBS_URL" in problem["detail"]
