"""Sessions of the web pages."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime

from postroom.model.message import INTERNAL
from postroom.model.values import dataclass


@dataclass(frozen=True, slots=True)
class WebSession:
    """A person who is signed in to the web pages, in one browser.

    `key_hash` finds the key they signed in with; None if they came by a link from the terminal.
    """

    id: str
    key_id: str
    user_agent: str
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    key_hash: bytes | None = field(default=None, repr=False, metadata=INTERNAL)
