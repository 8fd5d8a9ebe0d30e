"""`web`: a link that signs the owner in to the web pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from postroom.config.settings import base_url
from postroom.errors import Forbidden
from postroom.surfaces.cli.session import Session

if TYPE_CHECKING:
    from postroom.app import App


@click.command(
    help="Print a link that signs you in to the web pages of the running server, once, within 10 "
    "minutes. It is printed to a terminal only, because it lets its bearer approve held mail."
)
@click.option("--host", metavar="ADDRESS", help="The address of the server.  [default: 127.0.0.1]")
@click.option("--port", metavar="NUMBER", help="The port of the server.  [default: 8700]")
@click.option("--sign-out", is_flag=True, help="End every session of the web pages instead.")
@click.pass_obj
def web(session: Session, /, *, sign_out: bool, **given: Any) -> None:
    if sign_out:
        ended = session.run(_sign_out)
        session.report({"ended": ended}, lambda: print(f"Sessions ended: {ended}"))
        return
    settings = session.configuration(**given).settings
    url = settings.public_url or base_url(settings.host, settings.port)
    link = session.run(lambda app: _link(app, url))
    session.report({"url": link}, lambda: print(link))
    if not session.as_json:
        print("It signs you in once, within 10 minutes.", file=sys.stderr)


async def _link(app: App, url: str) -> str:
    if not sys.stdout.isatty():
        raise Forbidden("the link is printed to a terminal only; run `postroom web` on one")
    from postroom.surfaces.web.server import sign_in_link

    return await sign_in_link(app, url)


async def _sign_out(app: App) -> int:
    from postroom.calls.web_sessions import sign_out
    from postroom.model.key import OWNER

    return await sign_out(app.services, OWNER)
