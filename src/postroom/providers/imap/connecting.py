"""From an account to a client that is logged in, with every wait limited and TLS as demanded."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from functools import lru_cache

from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers.imap.client import Client
from postroom.providers.imap.connection import Connection
from postroom.providers.imap.faults import Disconnected, NotSecure, Refused, TimedOut
from postroom.providers.imap.status import shown


async def connect(account: ImapAccount, timeouts: ImapTimeouts) -> Client:
    """Connect, make it secure and log in.

    Raises:
        NotSecure: TLS failed or was not offered; no secret was sent.
        LoginRefused: the server does not take the user or the secret.
        ImapFault: anything else.
    """
    client = Client(await _open(account, timeouts))
    try:
        await _greet(client, account, timeouts)
        if account.auth == "xoauth2":
            await client.login_with_token(account.user, account.secret)
        else:
            await client.login(account.user, account.secret)
        await client.introduce()
        await client.compress()
    except BaseException:
        client.connection.close("the login did not come to its end")
        raise
    return client


async def _open(account: ImapAccount, timeouts: ImapTimeouts) -> Connection:
    context = tls_context(account) if account.security == "tls" else None
    try:
        async with asyncio.timeout(timeouts.connect_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(socket_s=timeouts.socket_s),
                account.host,
                account.port,
                ssl=context,
                server_hostname=account.host if context is not None else None,
            )
    except TimeoutError as error:
        raise TimedOut("no connection in time") from error
    except ssl.SSLError as error:
        raise NotSecure(f"TLS failed: {shown(str(error))}") from error
    except OSError as error:
        said = shown(error.strerror or str(error)) or "the other side closed it"
        raise Disconnected(f"no connection: {said}") from error
    if (not account.secure or account.is_unverified) and not _is_loopback(connection):
        connection.close("not on loopback")
        raise NotSecure("an account without verified TLS must be on this machine")
    return connection


def _is_loopback(connection: Connection) -> bool:
    return ipaddress.ip_address(connection.peer_address).is_loopback


async def _greet(client: Client, account: ImapAccount, timeouts: ImapTimeouts) -> None:
    try:
        async with asyncio.timeout(timeouts.greeting_s):
            greeting = await client.connection.greeting
    except TimeoutError as error:
        raise TimedOut("no greeting in time") from error
    if greeting.word != "OK":
        # PREAUTH would let a man in the middle talk us out of TLS, and of our login.
        if greeting.word == "PREAUTH":
            raise NotSecure("the server greets as if we were logged in already")
        raise Refused("greeting", greeting.word, greeting.code, shown(greeting.text))
    if not client.learn_from(greeting):
        await client.ask_capabilities()
    if account.security == "starttls":
        await client.start_tls(tls_context(account), account.host, timeouts.connect_s)


@lru_cache(maxsize=64)
def tls_context(account: ImapAccount) -> ssl.SSLContext:
    """TLS 1.2 or later, with the certificate and the host name verified. Raises NotSecure."""
    try:
        context = ssl.create_default_context(cafile=account.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise NotSecure(f"the CA file cannot be used: {shown(str(error))}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if account.is_unverified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
