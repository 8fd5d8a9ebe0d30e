"""Mail that the provider of an account would not take is refused before anything is written."""

from __future__ import annotations

from postroom.errors import TooLarge
from postroom.mail.compose import Outgoing
from postroom.operations.context import Context

_FEWER = "send fewer or smaller files"
_SHORTER = "send the text in parts, or as a file"


async def refuse_oversize(ctx: Context, account_id: str, outgoing: Outgoing, raw: bytes) -> None:
    """Refuse what is over a limit that the provider has told of. Raises TooLarge."""
    stored = await ctx.store.capabilities_of(account_id) or {}
    sizes = [len(file.content) for file in outgoing.attachments]
    text = len(raw) - sum(_encoded(size) for size in sizes)
    for what, size, most, instead in (
        ("message has", len(raw), stored.get("mail_bytes"), _FEWER),
        ("attachments together have", sum(sizes), stored.get("files_bytes"), _FEWER),
        ("message without its files has", text, stored.get("text_bytes"), _SHORTER),
    ):
        if most is not None and size > most:
            raise TooLarge(
                f"the {what} {size} bytes; the provider of the account {account_id} takes no more "
                f"than {most}; {instead}",
                limit=most,
            )


def _encoded(size: int) -> int:
    """How long so many bytes are in base64, in lines of 76 characters."""
    characters = -(-size // 3) * 4
    return characters + 2 * -(-characters // 76)
