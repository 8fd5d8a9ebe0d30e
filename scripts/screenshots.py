"""Take the screenshots of README and docs from the demo of a running server: make screenshots.

    python scripts/screenshots.py FOLDER

Each picture is a row of `PICTURES`: a page, the size of the window, and light or dark. A path may
name a message of the demo by its subject in braces, or a plan.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx2
from playwright.async_api import Browser, Page, async_playwright

from postroom.app import open_app
from postroom.calls.authentication import new_sign_in_link
from postroom.calls.operation import call
from postroom.config import Settings, read_settings
from postroom.model.key import OWNER
from postroom.operations.rule_runs import list_rule_plans
from tests.servers.postroom import Running, running
from tests.surfaces.web.chromium import FLAGS

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>/usr/share/fonts</dir>
<alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
<alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A screenshot: its file, its page, and the window."""

    name: str
    path: str
    is_phone: bool = False
    scheme: str = "light"


PICTURES = (
    Picture("overview", "/"),
    Picture("mail", "/mail/{Re: Planning on Thursday?}"),
    Picture("mail-dark", "/mail/{Re: Planning on Thursday?}", scheme="dark"),
    Picture("agent-view", "/mail/{Invoice HH-2026-0117: our bank details have changed}?tab=agent"),
    Picture("held-mail", "/outgoing/{Re: Price list for the spring workshop?}"),
    Picture("rules", "/rules/plans/{a plan}"),
    Picture("phone", "/mail", is_phone=True),
)


def _ids(server: Running) -> dict[str, str]:
    """The messages of the demo by their subjects."""
    query = {"mailbox": "*", "limit": 100, "sort": "oldest"}
    headers = {"Authorization": f"Bearer {server.key}"}
    found = httpx2.get(f"{server.url}/v1/search/messages", params=query, headers=headers).json()
    return {row["subject"]: row["id"] for row in found["results"]}


async def _plan(server: Running) -> str:
    """The newest plan of the demo."""
    async with open_app(_settings(server)) as app:
        page = await call(app.context(OWNER), list_rule_plans, {})
        return page.results[0].id


def _settings(server: Running) -> Settings:
    return read_settings({"POSTROOM_DATA_DIR": str(server.data)}).settings


async def _sign_in(browser: Browser, server: Running, picture: Picture) -> Page:
    async with open_app(_settings(server)) as app:
        link = await new_sign_in_link(app.services)
    context = await browser.new_context(
        base_url=server.url,
        viewport=PHONE if picture.is_phone else DESKTOP,  # type: ignore[arg-type]
        color_scheme=picture.scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(f"/signin?link={link}")
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{server.url}/")
    return page


async def _take(browser: Browser, server: Running, picture: Picture, folder: Path) -> None:
    ids = {**_ids(server), "a plan": await _plan(server)}
    path = re.sub(r"\{(.+?)\}", lambda found: quote(ids[found[1]]), picture.path)
    page = await _sign_in(browser, server, picture)
    answer = await page.goto(path)
    if answer is None or not answer.ok:
        raise RuntimeError(f"{path}: {answer}")
    await page.wait_for_load_state("load")
    await page.screenshot(path=folder / f"{picture.name}.png")
    await page.context.close()


async def _take_all(server: Running, folder: Path, fonts: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=FLAGS,
            env={**os.environ, "FONTCONFIG_FILE": str(fonts)},
        )
        for picture in PICTURES:
            await _take(browser, server, picture, folder)
            _shrink(folder / f"{picture.name}.png")
        await browser.close()


def _shrink(path: Path) -> None:
    """Write an image with 256 colours, and print its size."""
    words = ["--force", "--strip", "--speed", "1", "--quality", "70-95", "--output"]
    subprocess.run(["pngquant", *words, str(path), str(path)], check=True)
    print(f"{path} {path.stat().st_size:,} bytes")


def main(folder: Path) -> None:
    """Write every screenshot into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        fonts = Path(scratch, "fonts.conf")
        fonts.write_text(FONTS)
        with running(Path(scratch, "data"), options=["--demo"]) as server:
            asyncio.run(_take_all(server, folder, fonts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
