"""Downloads over HTTP: files that came with mail, which no browser shows as a page of ours."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from postroom.mail.mime.attachments import content_disposition
from postroom.model.message import Download

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}", re.IGNORECASE)


async def download_response(download: Download, *, is_head: bool) -> Response:
    """The first chunk is read before the status is sent, so that an error can still be reported."""
    headers = {
        "Content-Disposition": content_disposition(download.filename),
        "Content-Length": str(download.size),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Type": safe_media_type(download.content_type),
    }
    if is_head:
        return Response(headers=headers)
    first = await anext(aiter(download.chunks), b"")
    return StreamingResponse(_continued(first, download.chunks), headers=headers)


async def _continued(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def safe_media_type(stated: str) -> str:
    """The declared content type if it is valid; it comes from a mail and goes into a header."""
    return stated.lower() if _MEDIA_TYPE.fullmatch(stated) else "application/octet-stream"
