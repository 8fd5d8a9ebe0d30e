"""A relay over SMTP: every reply has a meaning, and what has none is not guessed."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import aiosmtplib
from aiosmtplib.protocol import normalize_message_line_endings

from postroom.errors import ProviderAuthFailed, ProviderError
from postroom.model.outbox import Envelope, Outcome, Verdict
from postroom.ports.sender import Accepted
from postroom.providers.faults import why
from postroom.providers.smtp.url import RelayAddress

ANSWER_S = 60.0
FINAL_ANSWER_S = 600.0
"""RFC 5321 §4.5.3.2.6: the relay may take this long to say that it has the mail."""

IDLE_S = 30.0
_MOST_PER_CONNECTION = 100
_DOT = re.compile(rb"(?m)^\.")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")
_SIZE = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
"""RFC 1870 §4: 0, or nothing, says that there is no limit."""

_NOT_INTERNATIONAL = "the relay takes no mail with addresses that are not in ASCII (SMTPUTF8)"
_UNKNOWN = (
    "the connection ended before the relay said whether it has the mail ({}); it is not sent again "
    "by itself: ask the recipient, then retry it or leave it"
)


class _Refusal(Exception):
    """The relay ended our attempt for all recipients that were left."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


@dataclass(slots=True)
class _Connection:
    """An open session with the relay."""

    client: aiosmtplib.SMTP
    used: int = 0
    idle_since: float = 0.0

    @property
    def is_fresh(self) -> bool:
        return self.used == 0

    def is_usable(self, now: float) -> bool:
        is_young = self.used < _MOST_PER_CONNECTION and now - self.idle_since < IDLE_S
        return self.client.is_connected and is_young

    async def quit(self) -> None:
        with suppress(aiosmtplib.SMTPException, OSError, ValueError):
            await asyncio.wait_for(self.client.quit(), 1)
        self.client.close()


@dataclass(slots=True)
class SmtpRelay:
    """Hands mail over, with connections that are used again."""

    address: RelayAddress
    our_name: str
    sign: Callable[[bytes], bytes] = lambda raw: raw
    answer_s: float = ANSWER_S
    final_answer_s: float = FINAL_ANSWER_S
    _idle: list[_Connection] = field(default_factory=list)

    async def hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        try:
            await self._hand_over(envelope, self.sign(raw), accepted, outcomes)
        except _Refusal as refusal:
            for recipient in envelope.recipients:
                outcomes.setdefault(recipient, refusal.outcome)
        return outcomes

    async def check(self, account_id: str) -> int | None:
        """Log in and leave; how many bytes a mail may have, if the server says so.

        Raises ProviderAuthFailed or ProviderError, which name the server.
        """
        place = f"{account_id}: SMTP at {self.address.host}:{self.address.port}"
        try:
            connection = await self._connect()
        except _Refusal as refusal:
            kind = ProviderAuthFailed if _is_login(refusal) else ProviderError
            raise kind(f"{place}: {refusal.outcome.detail}") from refusal
        told = _SIZE.fullmatch(connection.client.esmtp_extensions.get("size", ""))
        await connection.quit()
        return int(told[0]) if told else None

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().quit()

    async def _hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted, outcomes: dict[str, Outcome]
    ) -> None:
        connection = await self._begin(envelope, raw)
        try:
            taken = await self._recipients(connection, envelope, outcomes)
            if taken:
                await accepted(taken)
                outcome = await self._data(connection, raw)
                outcomes.update(dict.fromkeys(taken, outcome))
            else:
                await self._ask(connection, b"RSET")
        except BaseException:
            connection.client.close()
            raise
        self._keep(connection)

    async def _begin(self, envelope: Envelope, raw: bytes) -> _Connection:
        """Have a connection that took our MAIL; an old one that was closed is replaced."""
        while True:
            connection = await self._connection()
            try:
                await self._mail(connection, envelope, raw)
            except _Refusal as refusal:
                was_old = not connection.is_fresh
                lives = connection.client.is_connected and refusal.outcome.verdict == "failed"
                if lives:
                    self._keep(connection)
                else:
                    connection.client.close()
                if was_old and not lives:
                    continue
                raise
            return connection

    async def _connection(self) -> _Connection:
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now):
                return connection
            await connection.quit()
        return await self._connect()

    def _keep(self, connection: _Connection) -> None:
        connection.used += 1
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    async def _connect(self) -> _Connection:
        address = self.address
        try:
            context = tls_context(address)
        except ValueError as error:
            raise _later(f"no connection to the relay: {error}") from error
        client = aiosmtplib.SMTP(
            hostname=address.host,
            port=address.port,
            use_tls=address.security == "tls",
            start_tls=address.security == "starttls",
            tls_context=context,
            local_hostname=self.our_name,
            timeout=self.answer_s,
        )
        try:
            await client.connect()
            await client._ehlo_or_helo_if_needed()
            if address.username is not None:
                await client.login(address.username, address.password or "")
        except aiosmtplib.SMTPResponseException as error:
            client.close()
            said = self._without_login(f"{error.code} {error.message}")
            raise _later(f"the relay said {said}") from error
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            client.close()
            place = f"{address.host}:{address.port}"
            raise _later(f"no connection to the relay {place}: {why(error)}") from error
        return _Connection(client)

    def _without_login(self, text: str) -> str:
        """What a relay says, without our own password if it repeats it."""
        return text.replace(self.address.password, "...") if self.address.password else text

    async def _mail(self, connection: _Connection, envelope: Envelope, raw: bytes) -> None:
        client = connection.client
        options = []
        if client.supports_extension("size"):
            options.append(f"SIZE={len(raw)}".encode())
        if not raw.isascii() and client.supports_extension("8bitmime"):
            options.append(b"BODY=8BITMIME")
        if _is_international(envelope, raw):
            if not client.supports_extension("smtputf8"):
                raise _Refusal(_outcome(553, _NOT_INTERNATIONAL))
            options.append(b"SMTPUTF8")
        sender = f"FROM:<{envelope.sender}>".encode()
        code, text = await self._ask(connection, b"MAIL", sender, *options)
        if not 200 <= code < 300:
            raise _Refusal(_outcome(code, text))

    async def _recipients(
        self, connection: _Connection, envelope: Envelope, outcomes: dict[str, Outcome]
    ) -> list[str]:
        """Whom the relay accepts; what it says of the others is in *outcomes*."""
        taken = []
        for recipient in envelope.recipients:
            code, text = await self._ask(connection, b"RCPT", f"TO:<{recipient}>".encode())
            if code == 421:
                raise _Refusal(_outcome(code, text))
            if 200 <= code < 300:
                taken.append(recipient)
            else:
                # RFC 5321 §4.5.3.1.10: 552 means too many recipients here, and is not for ever.
                outcomes[recipient] = _outcome(452 if code == 552 else code, text)
        return taken

    async def _data(self, connection: _Connection, raw: bytes) -> Outcome:
        """Send the mail itself; until the relay has answered it, nothing is certain."""
        code, text = await self._ask(connection, b"DATA")
        if code != 354:
            raise _Refusal(_outcome(code if code >= 400 else 451, text))
        protocol = connection.client.protocol
        body = _DOT.sub(b"..", normalize_message_line_endings(raw)) + b".\r\n"
        try:
            if protocol is None:
                raise aiosmtplib.SMTPServerDisconnected("the connection was lost")
            protocol.write(body)
            response = await protocol.read_response(timeout=self.final_answer_s)
        except (aiosmtplib.SMTPException, OSError) as error:
            raise _Refusal(Outcome("unknown", _UNKNOWN.format(_plain(str(error))))) from error
        if not 200 <= response.code < 600 or 300 <= response.code < 400:
            said = f"it said {response.code} {_plain(response.message)}"
            raise _Refusal(Outcome("unknown", _UNKNOWN.format(said)))
        if response.code == 421:
            connection.client.close()
        return _outcome(response.code, response.message)

    async def _ask(self, connection: _Connection, *words: bytes) -> tuple[int, str]:
        try:
            response = await connection.client.execute_command(*words, timeout=self.answer_s)
        except aiosmtplib.SMTPResponseException as error:
            raise _later(f"the relay said {error.code} {error.message}") from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise _later(f"the connection to the relay ended: {error}") from error
        except ValueError as error:
            raise _Refusal(_outcome(553, f"this cannot be said to a relay: {error}")) from error
        return response.code, response.message


def tls_context(address: RelayAddress) -> ssl.SSLContext | None:
    """Whom we trust to be the relay; None if it is spoken to in the clear. Raises ValueError."""
    if address.security == "none":
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
    except ssl.SSLError as error:
        raise ValueError("its ca_file holds no certificate in PEM form") from error
    except OSError as error:
        raise ValueError(f"its ca_file cannot be read: {why(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _is_international(envelope: Envelope, raw: bytes) -> bool:
    """Whether a mail needs SMTPUTF8 (RFC 6531 §3.1), by its envelope or by its headers."""
    header = raw.partition(b"\r\n\r\n")[0]
    addresses = (envelope.sender, *envelope.recipients)
    return not header.isascii() or not all(address.isascii() for address in addresses)


def _is_login(refusal: _Refusal) -> bool:
    return isinstance(refusal.__cause__, aiosmtplib.SMTPAuthenticationError)


def _later(detail: str) -> _Refusal:
    return _Refusal(Outcome("deferred", _plain(detail)))


def _outcome(code: int, text: str) -> Outcome:
    verdict: Verdict = "deferred"
    if 200 <= code < 300:
        verdict = "sent"
    elif 500 <= code < 600:
        verdict = "failed"
    return Outcome(verdict, _plain(f"{code} {text}"))


def _plain(text: str) -> str:
    """What a server said, in one line that can do no harm."""
    return _UNPRINTABLE.sub(" ", text).strip()[:500]
