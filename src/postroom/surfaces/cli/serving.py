"""`serve`, `mcp` and the owner's key: how the house is opened to others."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from postroom.errors import Conflict, MailError
from postroom.surfaces.cli.exits import OK, explain
from postroom.surfaces.cli.session import Session

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.config import Settings
    from postroom.pipeline.tally import Tally
    from postroom.surfaces.cli.banner import KeyWords

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
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="How many processes serve and work side by side.",
)
@_toolsets
@_read_only
@click.pass_obj
def serve(session: Session, /, *, no_auth: bool, demo: bool, workers: int, **given: Any) -> int:
    from postroom.pipeline.tally import Tally
    from postroom.surfaces.cli.crew import Crew, apart
    from postroom.surfaces.crowd import allow_files

    allow_files()
    settings = session.sure_settings(**given)
    ports = Ports.take(settings)
    if workers == 1:
        asyncio.run(_alone(settings, ports, no_auth=no_auth, demo=demo))
        return OK
    # The threads of a bucket do not outlive a fork, and whoever comes after would wait for them.
    uses_bucket = settings.blobs_url is not None
    if (demo or uses_bucket) and (
        code := apart(lambda: _open_once(settings, demo=demo, as_json=session.as_json))
    ):
        return code
    asyncio.run(_introduce(settings, ports, no_auth=no_auth, demo=demo))

    tally = Tally(workers)

    def work(place: int, ready: Callable[[], None]) -> int:
        one = _one_of_many(settings, ports, tally.part(place), no_auth=no_auth, ready=ready)
        return _finish(one, as_json=session.as_json)

    return Crew(workers, work).run()


@dataclass(frozen=True)
class Ports:
    """The ports of a server, taken before anything else is done."""

    http: socket.socket
    smtp: socket.socket | None

    @classmethod
    def take(cls, settings: Settings) -> Ports:
        """Listen where the settings say. Raises Conflict, InvalidInput."""
        from postroom.surfaces.rest import server as rest
        from postroom.surfaces.smtp import server as smtp

        return cls(rest.listen(settings.host, settings.port), smtp.listen(settings))

    def banner(self, settings: Settings, words: KeyWords) -> str:
        """What to say of them."""
        from postroom.surfaces.cli.banner import banner, base_url, smtp_words

        port = self.smtp.getsockname()[1] if self.smtp else None
        url = base_url(settings.host, self.http.getsockname()[1])
        return banner(
            url,
            settings.data_dir,
            words,
            smtp_words(settings.smtp_listen, port),
            is_in_folder=settings.database_url is None and settings.blobs_url is None,
        )


async def _alone(settings: Settings, ports: Ports, *, no_auth: bool, demo: bool) -> None:
    from postroom.app import open_app

    async with open_app(settings) as app:
        words = await _greeting(app, ports, no_auth=no_auth, demo=demo)
        await _serve(app, ports, no_auth=no_auth, ready=lambda: print(words, flush=True))


def _open_once(settings: Settings, *, demo: bool, as_json: bool) -> int:
    """See that the house can be opened, make the demo in it, and return how that went."""
    from postroom.app import open_app
    from postroom.surfaces.cli.demo.seeding import seed_demo

    async def seed() -> None:
        async with open_app(settings) as app:
            if demo:
                await seed_demo(app)

    return _finish(seed(), as_json=as_json)


def _finish(work: Coroutine[Any, Any, None], *, as_json: bool) -> int:
    """Do it in a process apart, where nobody else would tell what went wrong."""
    try:
        asyncio.run(work)
    except MailError as error:
        return explain(error, as_json=as_json)
    return OK


async def _introduce(settings: Settings, ports: Ports, *, no_auth: bool, demo: bool) -> None:
    """Do once, and close again, what the processes to come must not do each."""
    from postroom.app import open_app
    from postroom.surfaces.mcp.server import http_app
    from postroom.surfaces.rest.server import Door

    async with open_app(settings, uses_blobs=settings.blobs_url is None) as app:
        # What is loaded now is loaded once, for all of them.
        http_app(app, Door.of(app, no_auth=no_auth), toolsets=settings.toolsets, read_only=False)
        print(await _greeting(app, ports, no_auth=no_auth, demo=demo), flush=True)


async def _one_of_many(
    settings: Settings, ports: Ports, tally: Tally, *, no_auth: bool, ready: Callable[[], None]
) -> None:
    from postroom.app import open_app

    async with open_app(settings, tally) as app:
        await _serve(app, ports, no_auth=no_auth, ready=ready)


async def _greeting(app: App, ports: Ports, *, no_auth: bool, demo: bool) -> str:
    from postroom.surfaces.cli.banner import key_words

    key = await _prepare(app, demo=demo)
    words = key_words(key, is_set=app.settings.api_key is not None, needs_key=not no_auth)
    return ports.banner(app.settings, words)


async def _serve(app: App, ports: Ports, *, no_auth: bool, ready: Callable[[], None]) -> None:
    from postroom.surfaces.mcp.server import http_app
    from postroom.surfaces.rest.server import Door, build, serve_on
    from postroom.surfaces.smtp.server import listening

    settings = app.settings
    endpoint = http_app(
        app,
        Door.of(app, no_auth=no_auth),
        toolsets=settings.toolsets,
        read_only=settings.read_only,
    )
    asgi = build(app, mounts={"/mcp": endpoint}, lifespans=[endpoint.lifespan], no_auth=no_auth)
    async with app.at_work(), AsyncExitStack() as stack:
        if ports.smtp is not None:
            await stack.enter_async_context(listening(app, ports.smtp))
        await serve_on(
            ports.http,
            asgi,
            ready=lambda _port: ready(),
            stopping=app.hurry,
        )


@click.command(help="Do what happens by itself (sending, webhooks, the index) and serve nobody.")
@click.option(
    "--port",
    metavar="NUMBER",
    help="Where to answer /healthz, /readyz and /metrics.  [default: nowhere]",
)
@click.pass_obj
def worker(session: Session, /, *, port: str | None) -> None:
    if port is None:
        asyncio.run(_work(session.sure_settings(), _unwatched))
        return
    from postroom.surfaces.rest.server import build_health, listen, serve_on

    settings = session.sure_settings(port=port)
    bound = listen(settings.host, settings.port)

    async def watched(app: App) -> None:
        await serve_on(bound, build_health(app), ready=_say_where, stopping=app.hurry)

    asyncio.run(_work(settings, watched))


async def _work(settings: Settings, until: Callable[[App], Awaitable[None]]) -> None:
    from postroom.app import open_app

    async with open_app(settings) as app, app.at_work():
        print("Postroom is at work. Stop it with Ctrl-C.", flush=True)
        await until(app)


def _say_where(port: int) -> None:
    print(f"How it goes is at port {port}: /healthz, /readyz and /metrics.", flush=True)


async def _unwatched(app: App) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    app.hurry()


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
    settings = session.sure_settings(**given)

    async def run() -> None:
        async with open_app(settings) as app, app.filling_in():
            try:
                await serve_stdio(
                    app,
                    toolsets=settings.toolsets,
                    read_only=settings.read_only,
                    caller=OWNER if key is None else await app.authenticate(key),
                )
            finally:
                app.hurry()

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
