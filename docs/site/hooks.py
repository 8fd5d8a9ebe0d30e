"""What the generator does not do: anchors as on GitHub, `.md` pages, `llms.txt`, the search index.

ProperDocs calls the functions by their names. They import nothing of Postroom, so that the site can
be built where only the generator is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+(?:bench|src|deploy|tests|[A-Z]+\.md)[^)]*)\)")
"""Links that leave the folder `docs`: the site does not have what they name."""


def slug(title: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Set what YAML cannot say."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Name what is outside the folder instead of linking to it, and say what a page is about."""
    markdown = within(markdown)
    page.meta.setdefault("description", first_sentence(markdown))
    return "\n".join(indented(markdown.splitlines()))


_ITEM = re.compile(r"( *)([-*+]|\d+[.)]) +")


def indented(lines: Iterable[str]) -> Iterator[str]:
    """What belongs to an item of a list, with the four spaces that Python-Markdown wants.

    On GitHub, it begins where the text of the item begins: two spaces after `-`, three after `1.`.
    """
    items: list[int] = []  # where the text of each open item begins
    fence = was_blank = False
    for line in lines:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        item = None if fence else _ITEM.match(line)
        if text and not fence and (item or was_blank):
            items = [start for start in items if start <= indent]
        if items and indent >= items[-1]:
            yield " " * (4 * len(items) + indent - items[-1]) + text
        else:
            yield line
        if item:
            items.append(item.end())
        fence ^= text.startswith("```")
        was_blank = not text


def within(markdown: str) -> str:
    """A page without links to what the site does not have."""
    return OUTSIDE.sub(_named, markdown)


def _named(link: re.Match[str]) -> str:
    path = re.sub(r"^(\.\./)+|#.*", "", link[3])
    return link[2] if path in link[2] else f"{link[2]} (`{path}`)"


def first_sentence(markdown: str) -> str:
    """What a page is about: the first sentence after its title, as plain text."""
    body = re.sub(r"\A(#+ .*\n\s*)+", "", markdown.lstrip())
    paragraph = " ".join(body.split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", plain(paragraph))[0].rstrip(":")


def on_page_content(html: str, **_: object) -> str:
    """A head of a table without words is a plain cell."""
    return html.replace("<th></th>", "<td></td>")


def on_post_build(config: Any) -> None:
    """Write each page as Markdown beside its HTML, the list of them, and the search index."""
    site, docs = Path(config.site_dir), Path(config.docs_dir)
    (site / "sitemap.xml").unlink()  # it would name a host and a date
    (site / "sitemap.xml.gz").unlink(missing_ok=True)
    parts, index = [f"# {config.site_name}", f"> {config.site_description}"], []
    for entry in config.nav:
        [(kind, inner)] = entry.items()
        lines = []
        for path in _paths(inner):
            text = within((docs / path).read_text("utf-8"))
            (site / path).write_text(text, "utf-8")
            lines.append(f"- [{title_of(text)}]({path}): {first_sentence(text)}")
            index += sections(path, text)
        parts += [f"## {kind}", "\n".join(lines)]
    (site / "llms.txt").write_text("\n\n".join(parts) + "\n", "utf-8")
    (site / "search.json").write_text(json.dumps(index, ensure_ascii=False), "utf-8")


def _paths(nav: Any) -> Iterator[str]:
    """The pages of a part of the navigation, in order."""
    if isinstance(nav, str):
        yield nav
        return
    for inner in nav.values() if isinstance(nav, dict) else nav:
        yield from _paths(inner)


def title_of(markdown: str) -> str:
    """The title of a page."""
    return markdown.partition("\n")[0].removeprefix("# ").replace("`", "")


def sections(path: str, markdown: str) -> Iterator[dict[str, str]]:
    """The entries of a page in the search index: one for each heading, with the text below it."""
    location = re.sub(r"README\.md$|(?<!README)\.md$", lambda f: _HTML[f[0]], path)
    title, anchor, lines, fenced = title_of(markdown), "", list[str](), False
    for line in [*markdown.splitlines()[1:], "## "]:
        fenced ^= line.startswith("```")
        heading = None if fenced else re.match(r"##+ (.*)", line)
        if heading is None:
            lines.append(line)
            continue
        text = plain(" ".join(lines))
        yield {
            "location": location + anchor,
            "page": title_of(markdown),
            "title": title,
            "text": text,
        }
        title, lines = plain(heading[1]), []
        anchor = "#" + slug(title, "-")


_HTML = {"README.md": "index.html", ".md": ".html"}


def plain(markdown: str) -> str:
    """Words without marks."""
    without = re.sub(r"!?\[([^\]]*)\]\([^)]*\)|```\w*|\|[-|]+\||[`*|]", r"\1", markdown)
    return " ".join(without.split())
