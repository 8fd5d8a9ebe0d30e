"""`account add`, `account login` and `account sync`.

A password is never an argument: it is prompted for, or read from standard input.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from postroom.errors import InvalidInput
from postroom.surfaces.cli.session import Session

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.calls.operation import Operation

_OAUTH = ("gmail", "outlook")

_SECURITY = click.Choice(["tls", "starttls", "none"])
_SIGN_IN = {
    "--password-stdin": "Read the password or API token from standard input.",
    "--device": "outlook: sign in on another device with a code.",
    "--paste": "Sign in with a browser elsewhere and paste the final address here.",
}


def _with_sign_in(command: Any) -> Any:
    for name, words in reversed(_SIGN_IN.items()):
        command = click.option(name, is_flag=True, help=words)(command)
    return command


@click.command(
    help="Add an account at a provider. The login is checked first. `postroom serve` then syncs it."
)
@click.argument("account_id", metavar="NAME")
@click.option(
    "--provider",
    type=click.Choice(["imap", "gmail", "outlook", "fastmail"]),
    default="imap",
    show_default=True,
    help="The provider of the account.",
)
@click.option("--address", metavar="ADDRESS", required=True, help="Its e-mail address.")
@click.option("--name", metavar="TEXT", help="The name shown as sender.")
@click.option("--user", metavar="TEXT", help="The user name, if it is not the address.")
@click.option("--host", metavar="HOST", help="imap: the server.")
@click.option("--port", metavar="NUMBER", help="imap: the port of the server.  [default: 993]")
@click.option("--security", type=_SECURITY, help="imap: the transport security.")
@click.option("--smtp-host", metavar="HOST", help="imap: the SMTP server.")
@click.option(
    "--smtp-port", metavar="NUMBER", help="imap: the port of the SMTP server.  [default: 465]"
)
@click.option(
    "--smtp-security", type=_SECURITY, help="imap: the transport security of the SMTP server."
)
@click.option("--ca-file", metavar="FILE", help="Trust this certificate instead of the system's.")
@click.option(
    "--insecure", is_flag=True, default=None, help="Do not require TLS; works on loopback only."
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "draft", "send"]),
    multiple=True,
    help="The operations to allow; read is always included.  [default: all three]",
)
@_with_sign_in
@click.pass_obj
def add(session: Session, /, *, provider: str, **given: Any) -> None:
    from postroom.operations.accounts import add_account
    from postroom.surfaces.cli.output import perform

    scopes = given.pop("scopes") or ("read", "draft", "send")
    ways = {name: given.pop(name) for name in ("password_stdin", "device", "paste")}
    arguments = {name: value for name, value in given.items() if value is not None}
    arguments |= {"provider": provider, "scopes": list(scopes)}

    if session.server is not None:
        secret = _password(provider, from_stdin=ways["password_stdin"])
        perform(session, add_account, {**arguments, **secret})
        return

    async def work(app: App) -> None:
        secret = await _secret(app, provider, scopes, **ways)
        await _call(session, app, add_account, {**arguments, **secret})
        if not session.as_json:
            print("`postroom serve` syncs it; `postroom account sync` syncs it now")

    session.run(work)


@click.command(help="Sign in to an account again, with another password or new tokens.")
@click.argument("account_id", metavar="NAME")
@_with_sign_in
@click.pass_obj
def login(session: Session, /, *, account_id: str, **ways: bool) -> None:
    from postroom.calls.operation import account_of
    from postroom.model.key import OWNER
    from postroom.operations.accounts import log_in_account
    from postroom.surfaces.cli.output import perform

    if session.server is not None:
        secret = _password("imap", from_stdin=ways["password_stdin"])
        perform(session, log_in_account, {"account_id": account_id, **secret})
        return

    async def work(app: App) -> None:
        account = await account_of(app.context(OWNER), account_id)
        scopes = tuple(account.options.get("scopes", ()))
        secret = await _secret(app, account.provider, scopes, **ways)
        await _call(session, app, log_in_account, {"account_id": account_id, **secret})

    session.run(work)


@click.command(help="Sync an account now, or ask the running server to.")
@click.argument("account_id", metavar="NAME")
@click.pass_obj
def sync(session: Session, /, *, account_id: str) -> None:
    from postroom.calls.operation import account_of
    from postroom.model.key import OWNER
    from postroom.operations.accounts import sync_account
    from postroom.pipeline.sync import sync_once
    from postroom.surfaces.cli.output import perform

    if session.server is not None:
        perform(session, sync_account, {"account_id": account_id})
        return

    async def work(app: App) -> None:
        account = await account_of(app.context(OWNER), account_id)
        if not await sync_once(app.services, account):
            print("another process syncs this account; it was asked to sync now", file=sys.stderr)
        await _call(session, app, sync_account, {"account_id": account_id})

    session.run(work)


async def _call(
    session: Session, app: App, operation: Operation[Any, Any], arguments: dict[str, Any]
) -> None:
    from postroom.surfaces.cli.backends import Local
    from postroom.surfaces.cli.output import show

    show(session, operation, await Local(app).body(operation, arguments))


async def _secret(
    app: App, provider: str, scopes: tuple[str, ...], *, password_stdin: bool, **ways: bool
) -> dict[str, Any]:
    """The credentials: prompted for, read, or from an OAuth sign-in."""
    from postroom.operations.accounts import credentials_of

    if provider not in _OAUTH or password_stdin:
        return _password(provider, from_stdin=password_stdin)
    show = partial(print, file=sys.stderr, flush=True)
    ask = _ask if ways["paste"] else None
    tokens = await app.sign_in(provider, scopes, show=show, ask=ask, device=ways["device"])
    return credentials_of(tokens)


def _password(provider: str, *, from_stdin: bool) -> dict[str, Any]:
    """A password or a token that a person has; a browser can sign in only where the server is."""
    if provider in _OAUTH and not from_stdin:
        raise InvalidInput(
            f"signing in to {provider} works only on the machine of the server; run this there, or "
            "give a token with --password-stdin"
        )
    name = "access_token" if provider in _OAUTH else "password"
    return {name: _typed(from_stdin=from_stdin)}


def _typed(*, from_stdin: bool) -> str:
    if from_stdin:
        text = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, err=True)
    else:
        raise InvalidInput("cannot prompt for the password; use --password-stdin")
    if not text:
        raise InvalidInput("the password is empty; enter the password of the account")
    return str(text)


def _ask() -> str:
    return str(click.prompt("The address of the last page", err=True))
