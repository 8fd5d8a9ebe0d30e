"""Places in a list that a client carries: signed, and good for the same question only."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TypeVar

from postroom.errors import InvalidInput
from postroom.model.page import Found, Page, Place, Slice
from postroom.operations.request import Paged

T = TypeVar("T")
_SIGNATURE_BYTES = 16
_NOT_OURS = (
    "cursor: not one that this list gave out; take next_cursor of the page before as it is, "
    "with the same filters, or start again without it"
)


@dataclass(frozen=True, slots=True)
class Cursors:
    """Issues and opens cursors with the secret of the store."""

    secret: bytes

    def slice(self, request: Paged) -> Slice:
        """Which slice a request asks for. Raises InvalidInput on a forged or foreign cursor."""
        after = self._open(request.cursor, _question(request)) if request.cursor else None
        return Slice(request.limit, request.offset, after)

    def page(self, request: Paged, found: Found[T]) -> Page[T]:
        """Make the page that answers a request."""
        cursor = self._issue(found.next, _question(request)) if found.next else None
        return Page(found.rows, found.total, request.limit, found.offset, next_cursor=cursor)

    def _issue(self, place: Place, question: bytes) -> str:
        return self.seal(json.dumps(place, separators=(",", ":")).encode(), question)

    def _open(self, cursor: str, question: bytes) -> Place:
        return tuple(json.loads(self.unseal(cursor, question)))

    def seal(self, body: bytes, question: bytes) -> str:
        """A cursor that carries *body*, good for *question* only."""
        return _text(body + self._sign(body, question))

    def unseal(self, cursor: str, question: bytes) -> bytes:
        """What a cursor carries. Raises InvalidInput if it is forged, or of another question."""
        try:
            data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except ValueError:
            raise InvalidInput(_NOT_OURS) from None
        body, signature = data[:-_SIGNATURE_BYTES], data[-_SIGNATURE_BYTES:]
        if _text(data) != cursor or not hmac.compare_digest(signature, self._sign(body, question)):
            raise InvalidInput(_NOT_OURS)
        return body

    def _sign(self, body: bytes, question: bytes) -> bytes:
        return hmac.digest(self.secret, question + body, "sha256")[:_SIGNATURE_BYTES]


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _question(request: Paged) -> bytes:
    """What must stay the same from page to page: everything but the page itself."""
    filters = request.model_dump_json(exclude={"limit", "offset", "cursor"}, exclude_defaults=True)
    return hashlib.sha256(f"{type(request).__name__}{filters}".encode()).digest()
