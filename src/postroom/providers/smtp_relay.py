"""The SMTP relay: signing and sending of outgoing mail.

This is the only module that uses aiosmtplib. `SMTP.protocol` with its methods `write` and
`read_response`, and `normalize_message_line_endings`, are not documented there. They are used
because `SMTP.data` raises the same error for a refused DATA and for refused content, and has one
timeout for both answers. `tests/test_library_internals.py` fails if a version lacks these names.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

import aiosmtplib
from aiosmtplib.protocol import normalize_message_line_endings

from postroom.errors import InvalidInput, ProviderAuthFailed, ProviderError
from postroom.mail.dkim import add_signature
from postroom.model.account import ANY_NETWORK, AnyNetwork, NetworkPolicy
from postroom.model.mail.sending import DeliveryResult, Envelope, Outcome
from postroom.ports.provider import Accepted
from postroom.providers import allowed_hosts
from postroom.providers.allowed_hosts import (
    SMTP_PORTS,
    connection_error,
    is_loopback_address,
    unreachable_message,
)
from postroom.providers.server_text import without_secret

Signer = Callable[[bytes], bytes]


def load_signer(path: Path | None, selector: str, domains: tuple[str, ...]) -> Signer:
    """A function that adds a DKIM signature with the key in a file. Raises InvalidInput."""
    if path is None:
        return lambda raw: raw
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"POSTROOM_DKIM_KEY: {path} cannot be read: {error}") from None
    if not isinstance(key, (rsa.RSAPrivateKey, ed25519.Ed25519PrivateKey)):
        raise InvalidInput("POSTROOM_DKIM_KEY: the key must be RSA or Ed25519")
    algorithm = "rsa-sha256" if isinstance(key, rsa.RSAPrivateKey) else "ed25519-sha256"

    def sign(data: bytes) -> bytes:
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return key.sign(hashlib.sha256(data).digest())

    def add(raw: bytes) -> bytes:
        domain = _domain(raw, domains)
        return add_signature(raw, sign, algorithm=algorithm, domain=domain, selector=selector)

    return add


def _domain(raw: bytes, domains: tuple[str, ...]) -> str:
    """The domain in From if Postroom serves it, else the first served domain."""
    head = raw[: raw.find(b"\r\n\r\n")].lower().replace(b"\r\n ", b" ")
    line = next((x for x in head.split(b"\r\n") if x.startswith(b"from:")), b"")
    own = line.rpartition(b"@")[2].rstrip(b"> \t").decode("ascii", "replace")
    return own if own in domains else domains[0]


RESPONSE_S = 60.0
FINAL_RESPONSE_S = 600.0
"""RFC 5321 §4.5.3.2.6: the timeout of the response to the content."""

IDLE_S = 30.0
_MAX_MAILS_PER_CONNECTION = 100
_DOT = re.compile(rb"(?m)^\.")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")
_SIZE = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
"""RFC 1870 §4: without a number, or with 0, there is no limit."""

_NOT_INTERNATIONAL = "the relay does not support addresses that are not ASCII (SMTPUTF8)"
_UNKNOWN = (
    "the connection ended before the relay confirmed the mail ({}); it is not retried "
    "automatically: ask the recipient, then retry or ignore it"
)


class _Refusal(Exception):
    """The outcome for all recipients that have none yet."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


@dataclass(slots=True)
class _Connection:
    """An open session with the relay."""

    client: aiosmtplib.SMTP
    used: int = 0
    idle_since: float = 0.0

    def is_usable(self, now: float) -> bool:
        is_reusable = self.used < _MAX_MAILS_PER_CONNECTION and now - self.idle_since < IDLE_S
        return self.client.is_connected and is_reusable

    async def hello(self) -> None:
        """Send EHLO, or HELO if the relay does not support that, unless `connect` has."""
        if not self.client.is_ehlo_or_helo_needed:
            return
        try:
            await self.client.ehlo()
        except aiosmtplib.SMTPHeloError:
            if not self.client.is_connected:
                raise
            await self.client.helo()

    async def send_content(self, raw: bytes, timeout_s: float) -> aiosmtplib.SMTPResponse:
        """Send the content after the relay answered DATA with 354, and return its response."""
        protocol = self.client.protocol
        if protocol is None:
            raise aiosmtplib.SMTPServerDisconnected("the connection was lost")
        protocol.write(_DOT.sub(b"..", normalize_message_line_endings(raw)) + b".\r\n")
        return await protocol.read_response(timeout=timeout_s)

    async def quit(self) -> None:
        with suppress(aiosmtplib.SMTPException, OSError, ValueError):
            await asyncio.wait_for(self.client.quit(), 1)
        self.client.close()


@dataclass(slots=True)
class SmtpRelay:
    """Sends mail to a relay, and reuses connections."""

    address: RelayAddress
    helo_name: str
    sign: Callable[[bytes], bytes] = lambda raw: raw
    response_s: float = RESPONSE_S
    final_response_s: float = FINAL_RESPONSE_S
    _idle: list[_Connection] = field(default_factory=list)

    async def transmit(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        try:
            await self._transmit(envelope, self.sign(raw), accepted, outcomes)
        except _Refusal as refusal:
            for recipient in envelope.recipients:
                outcomes.setdefault(recipient, refusal.outcome)
        return outcomes

    async def check(self, account_id: str) -> int | None:
        """Log in and disconnect; the maximum size of a mail, if the server announces one.

        Raises ProviderAuthFailed or ProviderError, which name the server.
        """
        place = f"{account_id}: SMTP at {self.address.host}:{self.address.port}"
        try:
            connection = await self._connect()
        except _Refusal as refusal:
            kind = ProviderAuthFailed if _is_login_error(refusal) else ProviderError
            raise kind(f"{place}: {refusal.outcome.detail}") from refusal
        size = _SIZE.fullmatch(connection.client.esmtp_extensions.get("size", ""))
        await connection.quit()
        return int(size[0]) if size else None

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().quit()

    async def _transmit(
        self, envelope: Envelope, raw: bytes, accepted: Accepted, outcomes: dict[str, Outcome]
    ) -> None:
        connection = await self._start_mail(envelope, raw)
        try:
            taken = await self._recipients(connection, envelope, outcomes)
            if taken:
                await accepted(taken)
                outcome = await self._data(connection, raw)
                outcomes.update(dict.fromkeys(taken, outcome))
            else:
                await self._command(connection, b"RSET")
        except BaseException:
            connection.client.close()
            raise
        self._return_to_pool(connection)

    async def _start_mail(self, envelope: Envelope, raw: bytes) -> _Connection:
        """A connection that accepted MAIL; reused connections that were closed are replaced."""
        while True:
            connection = await self._connection()
            try:
                await self._mail(connection, envelope, raw)
                return connection
            except _Refusal as refusal:
                is_reused = connection.used > 0
                if connection.client.is_connected and refusal.outcome.result == "failed":
                    self._return_to_pool(connection)
                    raise
                connection.client.close()
                if not is_reused:
                    raise

    async def _connection(self) -> _Connection:
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now):
                return connection
            await connection.quit()
        return await self._connect()

    def _return_to_pool(self, connection: _Connection) -> None:
        connection.used += 1
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    async def _connect(self) -> _Connection:
        """Connect and log in; details of errors are withheld if a key named the server."""
        try:
            return await self._open()
        except _Refusal as refusal:
            if isinstance(self.address.network_policy, AnyNetwork):
                raise
            reason = unreachable_message(self.address.host, self.address.port)
            if _is_login_error(refusal):
                reason = "the server refused the login; check the user and the password"
            raise _deferred(reason) from refusal.__cause__

    async def _open(self) -> _Connection:
        address = self.address
        try:
            context = tls_context(address)
        except ValueError as error:
            raise _deferred(f"no connection to the relay: {error}") from error
        sock = None
        if not isinstance(address.network_policy, AnyNetwork):
            checked = (address.network_policy, address.host, address.port, SMTP_PORTS)
            try:
                async with asyncio.timeout(self.response_s):
                    sock = await allowed_hosts.connect(*checked)
            except OSError as error:  # includes TimeoutError
                raise _deferred(unreachable_message(address.host, address.port)) from error
        client = aiosmtplib.SMTP(
            hostname=address.host,
            port=None if sock else address.port,
            sock=sock,
            use_tls=address.security == "tls",
            start_tls=address.security == "starttls",
            tls_context=context,
            local_hostname=self.helo_name,
            timeout=self.response_s,
        )
        connection = _Connection(client)
        try:
            await client.connect()
            await connection.hello()
            if address.username is not None:
                await client.login(address.username, address.password or "")
        except aiosmtplib.SMTPResponseException as error:
            client.close()
            said = without_secret(str(error.message), address.password)  # some relays repeat it
            raise _deferred(f"the relay answered {error.code} {said}".rstrip()) from error
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            client.close()
            relay = f"the relay {address.host}:{address.port}"
            raise _deferred(f"no connection to {relay}: {connection_error(error)}") from error
        return connection

    async def _mail(self, connection: _Connection, envelope: Envelope, raw: bytes) -> None:
        client = connection.client
        options = []
        if client.supports_extension("size"):
            options.append(f"SIZE={len(raw)}".encode())
        if not raw.isascii() and client.supports_extension("8bitmime"):
            options.append(b"BODY=8BITMIME")
        addresses = (envelope.sender, *envelope.recipients)
        header = raw.partition(b"\r\n\r\n")[0]
        # RFC 6531 §3.1
        if not header.isascii() or not all(address.isascii() for address in addresses):
            if not client.supports_extension("smtputf8"):
                raise _Refusal(_outcome(553, _NOT_INTERNATIONAL))
            options.append(b"SMTPUTF8")
        sender = f"FROM:<{envelope.sender}>".encode()
        code, text = await self._command(connection, b"MAIL", sender, *options)
        if not 200 <= code < 300:
            raise _Refusal(_outcome(code, text))

    async def _recipients(
        self, connection: _Connection, envelope: Envelope, outcomes: dict[str, Outcome]
    ) -> list[str]:
        """The accepted recipients; *outcomes* gets the others."""
        taken = []
        for recipient in envelope.recipients:
            code, text = await self._command(connection, b"RCPT", f"TO:<{recipient}>".encode())
            if code == 421:
                raise _Refusal(_outcome(code, text))
            if 200 <= code < 300:
                taken.append(recipient)
            else:
                # RFC 5321 §4.5.3.1.10: 552 means too many recipients here, which is temporary.
                outcomes[recipient] = _outcome(452 if code == 552 else code, text)
        return taken

    async def _data(self, connection: _Connection, raw: bytes) -> Outcome:
        """Send the content; until the relay responds, the outcome is unknown."""
        code, text = await self._command(connection, b"DATA")
        if code != 354:
            raise _Refusal(_outcome(code if code >= 400 else 451, text))
        try:
            response = await connection.send_content(raw, self.final_response_s)
        except (aiosmtplib.SMTPException, OSError) as error:
            raise _Refusal(Outcome("unknown", _UNKNOWN.format(_printable(str(error))))) from error
        if not 200 <= response.code < 600 or 300 <= response.code < 400:
            answer = f"it answered {response.code} {_printable(response.message)}"
            raise _Refusal(Outcome("unknown", _UNKNOWN.format(answer)))
        if response.code == 421:
            connection.client.close()
        return _outcome(response.code, response.message)

    async def _command(self, connection: _Connection, *words: bytes) -> tuple[int, str]:
        try:
            response = await connection.client.execute_command(*words, timeout=self.response_s)
        except aiosmtplib.SMTPResponseException as error:
            raise _deferred(f"the relay answered {error.code} {error.message}") from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise _deferred(f"the connection to the relay ended: {error}") from error
        except ValueError as error:
            raise _Refusal(_outcome(553, f"invalid SMTP command: {error}")) from error
        return response.code, response.message


def tls_context(address: RelayAddress) -> ssl.SSLContext | None:
    """The TLS context of the relay; None without TLS. Raises ValueError."""
    if address.security == "none":
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
    except ssl.SSLError as error:
        raise ValueError("its ca_file has no certificate in PEM form") from error
    except OSError as error:
        raise ValueError(f"its ca_file cannot be read: {connection_error(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _is_login_error(refusal: _Refusal) -> bool:
    return isinstance(refusal.__cause__, aiosmtplib.SMTPAuthenticationError)


def _deferred(detail: str) -> _Refusal:
    return _Refusal(Outcome("deferred", _printable(detail)))


def _outcome(code: int, text: str) -> Outcome:
    result: DeliveryResult = "deferred"
    if 200 <= code < 300:
        result = "sent"
    elif 500 <= code < 600:
        result = "failed"
    return Outcome(result, _printable(f"{code} {text}"))


def _printable(text: str) -> str:
    """A text of a server as one line of printable ASCII."""
    return _UNPRINTABLE.sub(" ", text).strip()[:500]


Security = Literal["tls", "starttls", "none"]
_FORM = (
    "must be like smtp://user:password@host:587 or smtps://host; in a user or a password, "
    "write # as %23, / as %2F, ? as %3F and % as %25"
)


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Address, security and login of the relay."""

    host: str
    port: int
    security: Security
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    network_policy: NetworkPolicy = ANY_NETWORK


def parse_relay_url(url: str) -> RelayAddress:
    """Parse the URL of a relay. Raises ValueError with the expected form.

    Only a relay on this machine without a password is used unencrypted; every other connection
    needs TLS with a valid certificate. Errors never repeat the URL, which may contain the password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_FORM) from None
    has_form = parts.scheme in ("smtp", "smtps") and parts.path in ("", "/") and "#" not in url
    if not has_form or not host:
        raise ValueError(_FORM)
    query = parse_qs(parts.query, keep_blank_values=True)
    options = {name: values[-1] for name, values in query.items()}
    if set(options) - {"insecure", "ca_file"}:
        raise ValueError(f"unknown option; the options are insecure and ca_file. It {_FORM}")
    is_local, is_insecure = is_loopback(host), options.get("insecure") == "true"
    if is_insecure and not is_local:
        raise ValueError("insecure=true is only allowed for a relay on this machine; use TLS")
    security: Security = "starttls"
    if parts.scheme == "smtps":
        security = "tls"
    elif is_insecure or (is_local and not parts.username and "ca_file" not in options):
        security = "none"
    return RelayAddress(
        host=host,
        port=port or (465 if parts.scheme == "smtps" else 587),
        security=security,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ca_file=Path(options["ca_file"]) if "ca_file" in options else None,
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    return host == "localhost" or host.endswith(".localhost") or is_loopback_address(host)
