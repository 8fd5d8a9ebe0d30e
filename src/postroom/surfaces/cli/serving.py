"""`serve`, `mcp` and the owner's key: how the house is opened to others."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any

import click

from postroom.errors import Conflict
from postroom.surfaces.cli.session import Session

if TYPE_CHECKING:
    from postroom.app import App

_toolsets = click.option(
    "--toolsets", metavar="NAMES", help="The MCP toolsets to show, with commas.  [default: all]"
)
_read_only = click.option(
    "--read-only", is_flag=True, default=None, help="Hide every MCP tool that writes."
)


@click.command(help="Start the server: REST under /v1, MCP under /mcp, documentation at /docs.")
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", metavar="NUMBER", help="The port.  [default: 8700]")
@click.option(
    "--smtp",
    "smtp_listen",
    metavar="ADDRESS:PORT",
    help="Where to receive mail; none for nowhere.  [default: 127.0.0.1:8725]",
)
@click.option("--no-auth", is_flag=True, help="Ask for no key; on this machine only.")
@click.option("--demo", is_flag=True, help="Fill an inbox with a few conversations.")
@_toolsets
@_read_only
@click.pass_obj
def serve(session: Session, /, *, no_auth: bool, demo: bool, **given: Any) -> None:
    from postroom.app import open_app
    from postroom.surfaces.cli.logs import start_logging
    from postroom.surfaces.rest.server import listen

    settings = session.configuration(**given).settings
    listen(settings.host, settings.port).close()
    start_logging()

    async def run() -> None:
        async with open_app(settings) as app:
            await _serve(app, no_auth=no_auth, demo=demo)

    asyncio.run(run())


async def _serve(app: App, *, no_auth: bool, demo: bool) -> None:
    from postroom.surfaces.cli.banner import banner, base_url, key_words, smtp_words
    from postroom.surfaces.mcp.server import http_app
    from postroom.surfaces.rest.server import Door, build
    from postroom.surfaces.rest.server import serve as serve_http
    from postroom.surfaces.smtp.server import listening

    settings = app.settings
    endpoint = http_app(
        app,
        Door.of(app, no_auth=no_auth),
        toolsets=settings.toolsets,
        read_only=settings.read_only,
    )
    asgi = build(app, mounts={"/mcp": endpoint}, lifespans=[endpoint.lifespan], no_auth=no_auth)
    key = await _prepare(app, demo=demo)
    words = key_words(key, is_set=settings.api_key is not None, needs_key=not no_auth)

    async with app.at_work(), listening(app) as smtp:
        mail_in = smtp_words(settings.smtp_listen, smtp.port if smtp else None)

        def ready(port: int) -> None:
            url = base_url(settings.host, port)
            print(banner(url, settings.data_dir, words, mail_in), flush=True)

        await serve_http(asgi, settings.host, settings.port, ready=ready)


async def _prepare(app: App, *, demo: bool) -> str | None:
    """Make sure that there is a key; return it if it may be shown."""
    if not demo:
        return await app.owner_key()
    from postroom.surfaces.cli.demo.seeding import seed_demo
    from postroom.surfaces.cli.keyfile import demo_key

    await seed_demo(app)
    return await demo_key(app)


@click.command(
    help="Serve an MCP client over stdin and stdout. No server needs to run beside it. "
    "It has the owner's rights, or those of a key."
)
@_toolsets
@_read_only
@click.option("--key", metavar="KEY", help="Have the rights of this key only.")
@click.pass_obj
def mcp(session: Session, /, *, key: str | None, **given: Any) -> None:
    # Nothing that is imported is garbage, and to look for it is a tenth of a cold start.
    gc.disable()
    from postroom.app import open_app
    from postroom.model.key import OWNER
    from postroom.surfaces.mcp.server import serve_stdio

    gc.freeze()
    gc.enable()
    settings = session.configuration(**given).settings

    async def run() -> None:
        async with open_app(settings) as app, app.at_work():
            await serve_stdio(
                app,
                toolsets=settings.toolsets,
                read_only=settings.read_only,
                caller=OWNER if key is None else await app.authenticate(key),
            )

    asyncio.run(run())


@click.command(help="Replace the owner's key. The old one stops working at once.")
@click.pass_obj
def reset_key(session: Session) -> None:
    from postroom.surfaces.cli.keyfile import keep_key, read_key
    from postroom.surfaces.cli.streams import write_json

    if session.settings.api_key is not None:
        raise Conflict("the owner's key is the setting POSTROOM_API_KEY; change it there")
    key = session.run(lambda app: app.reset_owner_key())
    if read_key(session.settings.data_dir) is not None:
        keep_key(session.settings.data_dir, key)
    if session.as_json:
        write_json({"id": "owner", "key": key})
        return
    print(key)
    print("This is the owner's key. It is shown only now.", file=sys.stderr)
