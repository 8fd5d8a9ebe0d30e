"""What the wire says, in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from postroom.errors import NotFound, ProviderAuthFailed, ProviderError, ProviderTimeout
from postroom.model.imap import ImapAccount
from postroom.providers.imap.faults import (
    ImapFault,
    LoginRefused,
    NotSecure,
    Refused,
    TimedOut,
    Unreadable,
)

_MISSING = ("NONEXISTENT", "TRYCREATE")
_FINAL = ("ALREADYEXISTS", "CANNOT", "CLIENTBUG", "LIMIT", "NOPERM", "OVERQUOTA", "TOOBIG")


@contextmanager
def imap_errors(account: ImapAccount) -> Iterator[None]:
    """Turn the faults of a connection into errors; no secret is in any of them."""
    try:
        yield
    except ImapFault as fault:
        # A traceback shows the fault as well, in the server's own words.
        fault.args = tuple(_without_secret(str(said), account) for said in fault.args)
        raise explained(fault, account) from fault


def explained(fault: ImapFault, account: ImapAccount) -> ProviderError | NotFound:
    """The error that tells a caller what a fault means for them."""
    where, said = account.account_id, _without_secret(str(fault), account)
    if isinstance(fault, LoginRefused):
        return ProviderAuthFailed(
            f"{where}: the server refused the login of this account; check its user and its "
            f"password or token ({_without_secret(fault.text, account)})"
        )
    if isinstance(fault, NotSecure):
        return Final(f"{where}: {said}; check host, port and certificate of this account")
    if isinstance(fault, TimedOut):
        return ProviderTimeout(f"{where}: {account.host} did not answer ({said}); try again later")
    if isinstance(fault, Refused):
        return refused(fault, account)
    if isinstance(fault, Unreadable):
        return Final(f"{where}: {account.host} does not speak IMAP as it should: {said}")
    return ProviderError(f"{where}: {account.host}: {said}; try again")


def refused(fault: Refused, account: ImapAccount) -> ProviderError | NotFound:
    """A NO or a BAD, with what the server said about it."""
    text = _without_secret(fault.text, account)
    message = f"{account.account_id}: the server refused {fault.command}: {text or fault.word}"
    if fault.code in _MISSING or (fault.command in ("EXAMINE", "SELECT") and fault.word == "NO"):
        return NotFound(message, server_said=text)
    is_final = fault.code in _FINAL or (fault.command == "CREATE" and not fault.code)
    if fault.word == "BAD" or is_final:
        return Final(message, server_said=text)
    return ProviderError(message, server_said=text)


class Final(ProviderError):
    """The server will say the same again."""

    retryable = False


def _without_secret(text: str, account: ImapAccount) -> str:
    """Some servers repeat what they were told."""
    return text.replace(account.secret, "********") if account.secret else text
