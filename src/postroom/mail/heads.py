"""The headers of a mail alone: who sent it, by what, to which list."""

from __future__ import annotations

from postroom.mail.headers import decoded_pairs, split_header
from postroom.mail.machines import is_auto_reply, is_auto_submitted, list_id
from postroom.model.facts import Head
from postroom.model.limits import Limits
from postroom.model.rule import OWN_MARK

_DEFAULT_LIMITS = Limits()


def read_head(raw: bytes, limits: Limits = _DEFAULT_LIMITS) -> Head:
    """What the beginning of a mail says; the rest need not be there."""
    fields = split_header(raw, 0, len(raw), limits=limits).fields
    kind = fields.first("content-type").strip().lower()
    return Head(
        headers=tuple(decoded_pairs(fields)),
        list_id=list_id(fields),
        is_automatic=is_auto_submitted(fields),
        is_report=kind.startswith("multipart/report") or is_auto_reply(fields),
        is_ours=OWN_MARK.lower() in fields,
    )
