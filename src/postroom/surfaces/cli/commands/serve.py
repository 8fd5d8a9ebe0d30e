"""`serve`, `worker`, `mcp` and `key reset`."""

from __future__ import annotations

import asyncio
import gc
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from postroom import __version__
from postroom.errors import Conflict, InvalidInput, MailError, Unauthenticated
from postroom.model.values import dataclass
from postroom.surfaces.cli.exit_codes import OK, explain
from postroom.surfaces.cli.session import Session, prepare_folder

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.config import Settings
    from postroom.surfaces.rest.server import Attempts

_toolsets = click.option(
    "--toolsets",
    metavar="NAMES",
    help="The MCP toolsets to list, separated by commas.  [default: inbox, mail, memory; imap if "
    "there is a live account]",
)
_read_only = click.option(
    "--read-only", is_flag=True, default=None, help="Hide every MCP tool that writes."
)


@click.command(help="Start the server: REST under /v1, MCP under /mcp, documentation at /docs.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", metavar="NUMBER", help="The port to listen on.  [default: 8700]")
@click.option(
    "--smtp",
    "smtp_listen",
    metavar="ADDRESS:PORT",
    help="The address of the SMTP listener, or none.  [default: 127.0.0.1:8725]",
)
@click.option("--no-auth", is_flag=True, help="Require no key; works on loopback only.")
@click.option("--demo", is_flag=True, help="Create an inbox with example mail.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of server processes.",
)
@_toolsets
@_read_only
@click.pass_obj
def serve(session: Session, /, *, no_auth: bool, demo: bool, workers: int, **given: Any) -> int:
    from postroom.app import open_app
    from postroom.pipeline.counters import SharedCounters
    from postroom.surfaces.cli.commands.supervisor import Supervisor, run_in_child
    from postroom.surfaces.connections import allow_files
    from postroom.surfaces.rest.server import new_attempts

    allow_files()
    settings = session.unambiguous_settings(**given)
    ports = Ports.take(settings)
    prepare_folder(settings, creates=True)
    if workers == 1:
        asyncio.run(_serve_single(settings, ports, no_auth=no_auth, demo=demo))
        return OK

    # Threads of the object store do not survive a fork; a child would wait for them.
    uses_bucket = settings.blobs_url is not None
    if (demo or uses_bucket) and (
        code := run_in_child(lambda: _open_once(settings, demo=demo, as_json=session.as_json))
    ):
        return code
    asyncio.run(_prepare_fork(settings, ports, no_auth=no_auth, demo=demo))

    counters, attempts = SharedCounters(workers), new_attempts()

    def work(number: int, ready: Callable[[], None]) -> int:
        async def run() -> None:
            async with open_app(settings, counters.part(number)) as app:
                await _serve(app, ports, no_auth=no_auth, ready=ready, attempts=attempts)

        return _finish(run(), as_json=session.as_json)

    return Supervisor(workers, work).run()


@dataclass(frozen=True, slots=True)
class Ports:
    """The listening sockets of a server, opened before anything else."""

    http: socket.socket
    smtp: socket.socket | None

    @classmethod
    def take(cls, settings: Settings) -> Ports:
        """Open the sockets. Raises Conflict, InvalidInput."""
        from postroom.surfaces.rest import server as rest
        from postroom.surfaces.smtp import server as smtp

        return cls(rest.listen(settings.host, settings.port), smtp.listen(settings))

    def url(self, settings: Settings) -> str:
        """The URL of the server for programs on this machine."""
        from postroom.config.settings import base_url

        return base_url(settings.host, self.http.getsockname()[1])

    def banner(self, settings: Settings, pages: str, key: OwnerKey) -> str:
        """The banner of `serve`; *pages* says how to see the web pages.

        The stdio line is shown only if all data is in the folder: URLs of databases and buckets
        contain passwords.
        """
        from postroom.surfaces.client_settings import curl, http_server, mcp_servers, stdio_server

        url = self.url(settings)
        over_http = http_server(url, key.in_json if key.in_shell else "")
        lines = [
            f"Postroom {__version__} is listening on {url}",
            "",
            f"  data      {settings.data_dir.absolute()}",
            f"  web       {pages}",
            f"  guide     {url}/guide",
            f"  API docs  {url}/docs",
            f"  mail in   {self._smtp_words(settings.smtp_listen)}",
            f"  key       {key.words}",
            f"  try it    {curl(url, key.in_shell)}",
            "",
        ]
        if settings.database_url is None and settings.blobs_url is None:
            lines += [
                "  Add it to an MCP client, over stdio:",
                f"    {mcp_servers(stdio_server(settings.data_dir))}",
                "  or over HTTP:",
            ]
        else:
            lines.append("  Add it to an MCP client over HTTP:")
        return "\n".join([*lines, f"    {mcp_servers(over_http)}", "", "  Stop it with Ctrl-C."])

    def _smtp_words(self, wanted: str | None) -> str:
        if wanted is None:
            return "SMTP is off; --smtp 127.0.0.1:8725 turns it on"
        host, _, number = wanted.rpartition(":")
        if self.smtp is None:
            return f"SMTP is off: port {number} is in use; choose another with --smtp"
        return f"smtp://{host}:{self.smtp.getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """The owner's key as the banner has it: in words, in a command, and in settings of a client.

    It is shown on a terminal only: a pipe may be a log, which others read and which is kept.
    """

    words: str
    in_shell: str = ""
    in_json: str = "$KEY"

    @classmethod
    def of(cls, settings: Settings, key: str | None, *, needs_key: bool) -> OwnerKey:
        """The words for a *key*; None if it is not known here. Keeps a file of a key not shown."""
        from postroom.surfaces.cli.session import keep_key, key_file, read_key

        if not needs_key:
            return cls("not required (--no-auth)")
        if settings.api_key is not None:
            return cls("the value of POSTROOM_API_KEY", "$POSTROOM_API_KEY", "$POSTROOM_API_KEY")
        if key is None:
            words = "shown at the first start; `postroom key reset` creates a new one"
            return cls(words, "$KEY")
        if sys.stdout.isatty():
            return cls(key, key, key)
        if read_key(settings.data_dir) != key:
            keep_key(settings.data_dir, key)
        path = key_file(settings.data_dir)
        return cls(f"in {path}, which only you can read", f"$(cat {shlex.quote(str(path))})")


async def _serve_single(settings: Settings, ports: Ports, *, no_auth: bool, demo: bool) -> None:
    from postroom.app import open_app

    async with open_app(settings) as app:
        words = await _banner(app, ports, no_auth=no_auth, demo=demo)
        await _serve(app, ports, no_auth=no_auth, ready=lambda: print(words, flush=True))


def _open_once(settings: Settings, *, demo: bool, as_json: bool) -> int:
    """Check that the installation opens, create the demo, and return an exit code."""
    from postroom.app import open_app
    from postroom.surfaces.cli.commands.demo import seed_demo

    async def seed() -> None:
        async with open_app(settings) as app:
            if demo:
                await seed_demo(app)

    return _finish(seed(), as_json=as_json)


def _finish(work: Coroutine[Any, Any, None], *, as_json: bool) -> int:
    """Run it in this child process and report its errors here."""
    try:
        asyncio.run(work)
    except MailError as error:
        return explain(error, as_json=as_json)
    return OK


async def _prepare_fork(settings: Settings, ports: Ports, *, no_auth: bool, demo: bool) -> None:
    """Prepare once, before forking, what all workers share, and print the banner."""
    from postroom.app import open_app
    from postroom.surfaces.mcp.server import http_app
    from postroom.surfaces.rest.server import AccessControl

    async with open_app(settings, uses_blobs=settings.blobs_url is None) as app:
        # Modules that are loaded now are shared by all workers.
        http_app(
            app, AccessControl.of(app, no_auth=no_auth), toolsets=settings.toolsets, read_only=False
        )
        print(await _banner(app, ports, no_auth=no_auth, demo=demo), flush=True)


async def _banner(app: App, ports: Ports, *, no_auth: bool, demo: bool) -> str:
    """Make sure that an owner's key exists, create the demo, and return the banner."""
    if demo:
        from postroom.surfaces.cli.commands.demo import seed_demo
        from postroom.surfaces.cli.session import demo_key

        await seed_demo(app)
        key = await demo_key(app)
    else:
        key = await app.owner_key() or await _key_in_file(app)
    pages = await _pages_words(app, ports.url(app.settings))
    return ports.banner(app.settings, pages, OwnerKey.of(app.settings, key, needs_key=not no_auth))


async def _pages_words(app: App, url: str) -> str:
    """How to see the pages: a link that signs the owner in is for a terminal only."""
    from postroom.surfaces.web.server import sign_in_link

    if not sys.stdout.isatty():
        return f"{url}/ (`postroom web` prints a link that signs you in)"
    link = await sign_in_link(app, app.settings.public_url or url)
    return f"{link}\n            (signs you in once, within 10 minutes)"


async def _key_in_file(app: App) -> str | None:
    """The owner's key in its file, if there is one and it is still valid."""
    from postroom.surfaces.cli.session import read_key

    key = read_key(app.settings.data_dir)
    if key is None:
        return None
    try:
        return key if (await app.authenticate(key)).is_owner else None
    except Unauthenticated:
        return None


async def _serve(
    app: App,
    ports: Ports,
    *,
    no_auth: bool,
    ready: Callable[[], None],
    attempts: Attempts | None = None,
) -> None:
    from postroom.surfaces.mcp.server import http_app, tool_text
    from postroom.surfaces.oauth import oauth_mounts
    from postroom.surfaces.rest.server import AccessControl, build, serve_on
    from postroom.surfaces.smtp.server import listening
    from postroom.surfaces.web.server import web_mounts

    settings, access = app.settings, AccessControl.of(app, no_auth=no_auth)
    endpoint = http_app(app, access, toolsets=settings.toolsets, read_only=settings.read_only)
    asgi = build(
        app,
        mounts={"/mcp": endpoint, **oauth_mounts(app), **web_mounts(app, access, tool_text)},
        lifespans=[endpoint.lifespan],
        no_auth=no_auth,
        attempts=attempts,
    )
    async with app.background_jobs(), AsyncExitStack() as stack:
        if ports.smtp is not None:
            await stack.enter_async_context(listening(app, ports.smtp))
        await serve_on(ports.http, asgi, ready=lambda _port: ready(), stopping=app.begin_shutdown)


@click.command(help="Run background jobs (sending, webhooks, sync, indexing) without a server.")
@click.option(
    "--port", metavar="NUMBER", help="The port of /healthz, /readyz and /metrics.  [default: none]"
)
@click.pass_obj
def worker(session: Session, /, *, port: str | None) -> None:
    if port is None:
        settings = session.unambiguous_settings()
        prepare_folder(settings, creates=False)
        asyncio.run(_work(settings, _without_health_port))
        return
    from postroom.surfaces.rest.server import build_health, listen, serve_on

    settings = session.unambiguous_settings(port=port)
    prepare_folder(settings, creates=False)
    bound = listen(settings.host, settings.port)

    async def watched(app: App) -> None:
        def ready(port: int) -> None:
            print(f"/healthz, /readyz and /metrics are on port {port}.", flush=True)

        await serve_on(bound, build_health(app), ready=ready, stopping=app.begin_shutdown)

    asyncio.run(_work(settings, watched))


async def _work(settings: Settings, until: Callable[[App], Awaitable[None]]) -> None:
    from postroom.app import open_app

    async with open_app(settings) as app, app.background_jobs():
        print("Postroom runs background jobs. Stop it with Ctrl-C.", flush=True)
        await until(app)


async def _without_health_port(app: App) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    app.begin_shutdown()


@click.command(
    help="Serve an MCP client over stdin and stdout. No server needs to be running. "
    "The client has the owner's rights, or those of the key in POSTROOM_KEY or --key-file."
)
@_toolsets
@_read_only
@click.option("--key-file", metavar="FILE", help="Use the key in this file.")
@click.option(
    "--key",
    metavar="KEY",
    help="Use this key. Other users of the machine can see it; prefer POSTROOM_KEY.",
)
@click.pass_obj
def mcp(session: Session, /, *, key: str | None, key_file: str | None, **given: Any) -> None:
    # Imports create no garbage; collecting would cost a tenth of a cold start.
    gc.disable()
    from postroom.app import open_app
    from postroom.surfaces.mcp.server import serve_stdio

    settings = session.unambiguous_settings(**given)
    prepare_folder(settings, creates=True)
    client_key = _key_of_client(settings, key, key_file)

    async def run() -> None:
        async with (
            open_app(settings) as app,
            app.background_jobs_when_unattended() as begin_background,
        ):
            gc.freeze()
            gc.enable()
            try:
                await serve_stdio(
                    app,
                    toolsets=settings.toolsets,
                    read_only=settings.read_only,
                    key=client_key,
                    after_call=begin_background,
                )
            finally:
                app.begin_shutdown()

    asyncio.run(run())


def _key_of_client(settings: Settings, key: str | None, key_file: str | None) -> str | None:
    """The key of the client; the command line takes precedence over the environment."""
    if key is not None and key_file is not None:
        raise InvalidInput("--key and --key-file cannot be combined; drop --key")
    if key_file is not None:
        from postroom.surfaces.cli.session import read_key_file

        return read_key_file(key_file)
    if key is None:
        return settings.key
    if not key.strip():
        raise InvalidInput(
            "--key is empty; give it a key, as `postroom key create` shows it, or leave it out to "
            "run as the agent without a key"
        )
    print(
        "warning: other users of this machine can see --key in the process list; "
        "use POSTROOM_KEY or --key-file",
        file=sys.stderr,
    )
    return key


@click.command(
    help="Replace the owner's key. The old one stops working immediately. The new "
    "one is shown on a "
    "terminal; otherwise it is written to owner.key in the data folder."
)
@click.pass_obj
def reset_key(session: Session) -> None:
    from postroom.surfaces.cli.session import keep_key, key_file, read_key

    if session.settings.api_key is not None:
        raise Conflict("the owner's key is the setting POSTROOM_API_KEY; change it there")
    key = session.run(lambda app: app.reset_owner_key())
    folder = session.settings.data_dir
    is_shown = sys.stdout.isatty()
    if not is_shown or read_key(folder) is not None:
        keep_key(folder, key)
    if not is_shown:
        path = str(key_file(folder))
        session.report({"id": "owner", "key_file": path}, lambda: print(path))
        words = "The owner's key is in this file, which only you can read; a pipe may be a log."
    else:
        session.report({"id": "owner", "key": key}, lambda: print(key))
        words = "This is the owner's key. It is shown only once."
    if not session.as_json:
        print(words, file=sys.stderr)
