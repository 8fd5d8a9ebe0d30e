"""Mail that the provider of an account would not take is refused before anything is written."""

from __future__ import annotations

from postroom.errors import TooLarge
from postroom.mail.compose import Outgoing
from postroom.operations.context import Context


async def refuse_oversize(ctx: Context, account_id: str, outgoing: Outgoing, raw: bytes) -> None:
    """Refuse what is over a limit that the provider has told of. Raises TooLarge."""
    stored = await ctx.store.capabilities_of(account_id) or {}
    files = sum(len(file.content) for file in outgoing.attachments)
    for what, size, most in (
        ("message has", len(raw), stored.get("mail_bytes")),
        ("attachments together have", files, stored.get("files_bytes")),
    ):
        if most is not None and size > most:
            raise TooLarge(
                f"the {what} {size} bytes; the provider of the account {account_id} takes no more "
                f"than {most}; send fewer or smaller files",
                limit=most,
            )
