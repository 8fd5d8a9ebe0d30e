"""Errors of IMAP connections, status responses, and their translation to our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from postroom.errors import NotFound, ProviderAuthFailed, ProviderError, ProviderTimeout, untrusted
from postroom.model.imap import ImapAccount
from postroom.providers.server_text import without_secret


class ImapFault(Exception):
    """A command failed."""


class Disconnected(ImapFault):
    """The connection failed or was lost."""


class TimedOut(ImapFault):
    """The server did not respond in time."""


class NotSecure(ImapFault):
    """The connection does not have the required security."""


class Unreachable(ImapFault):
    """A server that a key named cannot be used; the reason is withheld."""


class InvalidResponse(ImapFault):
    """A response is not valid IMAP, or exceeds a limit."""


class Refused(ImapFault):
    """The server answered NO or BAD; `code` is the response code in upper case."""

    def __init__(self, command: str, word: str, code: str, text: str) -> None:
        super().__init__(f"{command}: {word} {text}")
        self.command = command
        self.word = word
        self.code = code
        self.text = text


class LoginRefused(Refused):
    """The server refused the user or the secret."""


_STATUS = re.compile(
    rb"(OK|NO|BAD|BYE|PREAUTH)(?: |$)(?:\[([^\] ]+)(?: ([^\]]*))?\] ?)?(.*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Status:
    """A status response: its condition, response code with data, and text."""

    word: str
    code: str
    data: bytes
    text: str


def read_status(line: bytes) -> Status | None:
    """Parse a status response without its tag; None if it is another response."""
    found = _STATUS.fullmatch(line)
    if found is None:
        return None
    word, code, data, text = found.groups()
    return Status(
        word.decode().upper(),
        (code or b"").decode("ascii", "replace").upper(),
        data or b"",
        text.decode("utf-8", "replace"),
    )


def printable(text: str) -> str:
    """A text of a server as one line of at most 200 printable characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())[:200]


_EXPLAINED = (TimedOut, NotSecure, Unreachable)
"""Faults that quote no server."""

_MISSING = ("NONEXISTENT", "TRYCREATE")
_FINAL = ("ALREADYEXISTS", "CANNOT", "CLIENTBUG", "LIMIT", "NOPERM", "OVERQUOTA", "TOOBIG")


@contextmanager
def imap_errors(account: ImapAccount) -> Iterator[None]:
    """Translate faults of a connection to our errors, without secrets."""
    try:
        yield
    except ImapFault as fault:
        # A traceback shows the text of the fault as well.
        if not isinstance(fault, _EXPLAINED):
            fault.args = tuple(without_secret(str(arg), account.secret) for arg in fault.args)
        raise mail_error(fault, account) from fault


def mail_error(fault: ImapFault, account: ImapAccount) -> ProviderError | NotFound:
    """The error that a fault is reported as."""
    where, text = account.account_id, str(fault)
    if not isinstance(fault, _EXPLAINED):
        text = without_secret(text, account.secret) or "its answer is not shown"
    if isinstance(fault, LoginRefused):
        reason = without_secret(fault.text, account.secret)
        return ProviderAuthFailed(
            f"{where}: the server refused the login of this account; check its user and its "
            f"password or token{f' ({reason})' if reason else ''}"
        )
    if isinstance(fault, Unreachable):
        return ProviderError(f"{where}: {text}")
    if isinstance(fault, NotSecure):
        return PermanentError(f"{where}: {text}; check host, port and certificate of this account")
    if isinstance(fault, TimedOut):
        return ProviderTimeout(f"{where}: {account.host} did not answer ({text}); try again later")
    if isinstance(fault, Refused):
        return refusal_error(fault, account)
    if isinstance(fault, InvalidResponse):
        return PermanentError(f"{where}: invalid response from {account.host}: {text}")
    return ProviderError(f"{where}: {account.host}: {text}; try again")


def refusal_error(fault: Refused, account: ImapAccount) -> ProviderError | NotFound:
    """The error for NO or BAD, with the text of the server."""
    text = without_secret(fault.text, account.secret)
    message = f"{account.account_id}: the server refused {fault.command}: {text or fault.word}"
    if fault.code in _MISSING or (fault.command in ("EXAMINE", "SELECT") and fault.word == "NO"):
        return untrusted(NotFound(message, server_said=text))
    is_final = fault.code in _FINAL or (fault.command == "CREATE" and not fault.code)
    if fault.word == "BAD" or is_final:
        return PermanentError(message, server_said=text)
    return ProviderError(message, server_said=text)


class PermanentError(ProviderError):
    """A retry would fail in the same way."""

    retryable = False
