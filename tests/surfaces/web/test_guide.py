"""The documentation site: built from docs/, without dead links, served at /guide."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from urllib.parse import unquote, urldefrag

import pytest
from playwright.async_api import Browser, expect

from postroom.errors import NotFound
from postroom.model.event import EventType
from postroom.surfaces.http import KINDS
from postroom.surfaces.mcp.tool import CODES
from postroom.surfaces.web import guide
from tests.surfaces.web.chromium import browser, obstacles, violations
from tests.surfaces.web.conftest import WebInstallation, WebUser

__all__ = ["browser"]

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SITE = ROOT / "src/postroom/surfaces/web/site"
PAGES = ("index.html", "tutorials/quickstart.html", "how-to/web.html", "reference/api/rules.html")
"""One page of each kind, for tests in a browser."""


class Links(HTMLParser):
    """The links, assets and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.linked, self.loaded, self.anchors = path, set[str](), set[str](), {""}
        self.inline: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors.add(given.get("id", ""))
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if (tag == "script" and "src" not in given) or tag == "style":
            self.inline.append(tag)
        if tag == "a":
            self.linked.add(given["href"])
        elif "src" in given or "href" in given:
            self.loaded.add(given.get("src") or given["href"])


@pytest.fixture(scope="session")
def site(built_guide: Path) -> dict[str, Links]:
    """The pages of the site."""
    guide.file_names.cache_clear()
    return {str(path.relative_to(SITE)): Links(path) for path in SITE.rglob("*.html")}


def dead(site: dict[str, Links], name: str) -> Iterator[str]:
    """The links of a page whose target does not exist."""
    page = site[name]
    for link in page.linked | page.loaded:
        target, anchor = urldefrag(link)
        if re.match(r"https?://", target):
            continue
        path = (page.path.parent / unquote(target)).resolve() if target else page.path
        where = site.get(str(path.relative_to(SITE)))
        if not path.is_file() or (where and unquote(anchor) not in where.anchors):
            yield f"{name}: {link}"


def test_no_link_and_no_anchor_is_dead(site):
    assert [] == [link for name in site for link in dead(site, name)]
    assert 40 < len(site)


def test_a_dead_link_is_detected(site, tmp_path):
    page = SITE / "index.html"
    broken = Links(page)
    broken.linked = {"nowhere.html", "reference/rest.html#nothing", "https://example.com/"}

    found = sorted(dead({**site, "index.html": broken}, "index.html"))

    assert ["index.html: nowhere.html", "index.html: reference/rest.html#nothing"] == found


def test_the_pages_outside_the_site_have_no_dead_link():
    links = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "bench").rglob("*.md")]

    missing = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in links.findall(page.read_text("utf-8"))
        if not (page.parent / link).exists()
    ]

    assert [] == missing


def test_a_page_loads_no_external_assets_and_has_no_inline_code(site):
    assert [] == [link for page in site.values() for link in page.loaded if "//" in link]
    assert [] == [code for page in site.values() for code in page.inline]


def test_no_markdown_syntax_is_left_in_a_page(site):
    """Syntax that Python-Markdown does not support would stay as it is: a fence, a row, a link."""
    left = re.compile(r"```|\|---|\]\((?!\))[^)]*\.md")
    texts = {name: re.sub(r"<pre>.*?</pre>", "", page.path.read_text(), flags=re.DOTALL)
             for name, page in site.items()}  # fmt: skip

    assert [] == [name for name, text in texts.items() if left.search(text)]


def test_each_page_is_there_as_markdown_and_listed(site):
    index = (SITE / "llms.txt").read_text()
    listed = re.findall(r"\]\((.+?)\):", index)
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}

    assert pages == set(listed)
    assert [] == [name for name in listed if not (SITE / name).read_text().startswith("# ")]
    assert [] == re.findall(r"\):(?: *#.*)?$", index, re.MULTILINE)


def test_the_search_index_links_to_existing_sections(site):
    entries = json.loads((SITE / "search.json").read_text())
    places = [entry["location"].partition("#") for entry in entries]

    assert [] == [path for path, _, anchor in places if unquote(anchor) not in site[path].anchors]
    assert {path for path, _, _ in places} == set(site)


def test_two_builds_of_the_site_are_equal(site, tmp_path):
    build = [Path(sys.executable).parent / "properdocs", "build", "--quiet", "--site-dir", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True)

    first, second = ({p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}
                     for root in (SITE, tmp_path))  # fmt: skip

    assert first == second


def test_every_event_and_every_error_is_listed():
    row = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)
    events = row.findall((DOCS / "reference" / "events.md").read_text())
    error_row = re.compile(r"^\| `(\w+)` \| (\d+) \| (?:`(\w+)`)? *\|", re.MULTILINE)
    errors = error_row.findall((DOCS / "reference" / "errors.md").read_text())

    assert list(get_args(EventType)) == events
    assert [(k, str(kind.status), CODES.get(k, "")) for k, kind in KINDS.items()] == errors


async def test_the_files_are_served_unchanged(site, anonymous: WebUser):
    page = await anonymous.get("/guide/how-to/rules.html")
    source = await anonymous.get("/guide/how-to/rules.md")
    again = await anonymous.get("/guide/", headers={"If-None-Match": "x"})
    same = await anonymous.get("/guide/", headers={"If-None-Match": again.headers["etag"]})

    assert (SITE / "how-to/rules.html").read_bytes() == page.content
    assert "text/markdown; charset=utf-8" == source.headers["content-type"]
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert (200, 304) == (again.status_code, same.status_code)
    assert "/guide/" == (await anonymous.get("/guide")).headers["location"]
    assert "/guide/llms.txt" == (await anonymous.get("/llms.txt")).headers["location"]


@pytest.mark.parametrize(
    "path", ["/guide/nothing", "/guide/..%2fguide.py", "/guide/site/../guide.py", "/guide/%00",
             "/guide/assets", "/guide//etc/passwd", "/llms.txt/index.html"],
)  # fmt: skip
async def test_nothing_but_the_site_is_served(path, site, anonymous: WebUser):
    response = await anonymous.get(path)

    assert 404 == response.status_code


async def test_a_browser_gets_a_page_with_links_for_a_wrong_address(
    site, browser: Browser, installation: WebInstallation
):
    page = await browser.new_page(base_url=installation.url)
    answer = await page.goto("/guide/tutorial/quickstart<b>")
    links = [await one.get_attribute("href") for one in await page.locator("a").all()]
    found = [(await page.request.get(link)).status for link in links if link]

    assert answer is not None
    assert (404, "No such page – Postroom guide") == (answer.status, await page.title())
    assert "/guide/tutorials/quickstart.html" in links
    assert {200} == set(found[:-1])
    assert "" == await violations(page)


async def test_only_get_is_allowed(site, anonymous: WebUser):
    response = await anonymous.http.post("/guide/", data={})

    assert (405, "GET, HEAD") == (response.status_code, response.headers["allow"])


def test_a_package_without_the_site_explains_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setattr(guide, "_root", lambda: tmp_path)
    guide.file_names.cache_clear()

    with pytest.raises(NotFound, match="make docs"):
        guide.file_names()


async def test_the_site_is_accessible_and_makes_no_external_request(
    site, browser: Browser, installation: WebInstallation
):
    page = await browser.new_page(base_url=installation.url)
    asked, said = set[str](), list[str]()
    page.on("request", lambda request: asked.add(request.url))
    page.on("console", lambda message: said.append(message.text))

    found = {}
    for path in PAGES:
        await page.goto(f"/guide/{path}")
        found[path] = await obstacles(page)

    assert {path: {} for path in PAGES} == found
    assert [] == [url for url in asked if not url.startswith(f"{installation.url}/guide/")]
    assert [] == said


async def test_the_search_finds_a_section_with_the_keyboard(
    site, browser: Browser, installation: WebInstallation
):
    page = await browser.new_page(base_url=installation.url)
    await page.goto("/guide/how-to/rules.html")

    await page.keyboard.press("/")
    await page.keyboard.type("one-time codes")
    await expect(page.locator(".found li").first).to_contain_text("One-time codes in CI")
    assert "" == await violations(page)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/tutorials/codes-in-ci.html*")

    await page.keyboard.press("/")
    await page.keyboard.type("zzzzqq")
    await expect(page.locator(".found")).to_contain_text("Nothing found")
    await page.keyboard.press("Escape")
    await expect(page.locator(".found")).to_be_hidden()
