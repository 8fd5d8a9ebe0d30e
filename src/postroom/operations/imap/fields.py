"""Arguments that live operations share."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.model.imap import MOST_MAILBOX_CHARS, ImapLocator
from postroom.operations.imap.accounts import AccountId
from postroom.operations.request import Request

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HALF = re.compile(r"[\ud800-\udfff]")
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def without_controls(text: str) -> str:
    """Pass on a text without ASCII control characters. Raises ValueError."""
    if _CONTROL.search(text):
        raise ValueError("must not contain control characters")
    if _HALF.search(text):
        raise ValueError("must not contain half of a surrogate pair, which is no letter")
    return text


LiveMailbox = Annotated[
    str, Field(min_length=1, max_length=MOST_MAILBOX_CHARS), AfterValidator(without_controls)
]


def _locator(text: str) -> str:
    at = ImapLocator.parse(without_controls(text))
    if not _ACCOUNT.fullmatch(at.account_id):
        raise ValueError("names an account that cannot be: 1 to 64 letters, digits, _ and -")
    if len(at.mailbox) > MOST_MAILBOX_CHARS:
        raise ValueError(f"names a mailbox of more than {MOST_MAILBOX_CHARS} characters")
    return text


LiveMessageId = Annotated[
    str,
    Field(
        description="The message, as a search gave it.",
        examples=["imap:default:INBOX:1700000000:42"],
    ),
    AfterValidator(_locator),
]


def gone(at: ImapLocator) -> str:
    """What to say of a message that is not there."""
    return f"there is no message {at.uid} in {at.mailbox} any more; search again"


class OneLiveMessage(Request):
    """A request about one message on a server."""

    account_id: Annotated[
        AccountId | None,
        Field(description="Its account; may be left out.", examples=["default"]),
    ] = None
    message_id: LiveMessageId

    @model_validator(mode="after")
    def _names_one_account(self) -> Self:
        if self.account_id is not None and self.account_id != self.at.account_id:
            raise ValueError(
                f"account_id is {self.account_id}, but message_id names {self.at.account_id}; "
                "leave account_id out"
            )
        return self

    @property
    def at(self) -> ImapLocator:
        return ImapLocator.parse(self.message_id)
