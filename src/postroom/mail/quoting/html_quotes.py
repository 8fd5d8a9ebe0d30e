"""Quotations and signatures in HTML, by the elements in which mail programs put them.

They are written into the HTML in the forms that its text rendering knows: a `blockquote` of kind
`cite`, and the line `-- ` before a signature. Texts then need no second rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.data import load
from postroom.mail.html.html import is_too_deep
from postroom.mail.quoting.headings import HEADERS, is_forward
from postroom.mail.text.prefilter import prefilter

_DATA = load("html_quotes")
_QUOTES, _SIGNATURES = ",".join(_DATA["quotes"]), ",".join(_DATA["signatures"])
_BREAKS = ",".join(_DATA["breaks"])
_may_be_marked = prefilter("|".join(map(re.escape, _DATA["hints"])))
_ONLY_TOP = re.compile(r"border-top\s{0,3}:\s{0,3}(?!none|0|medium none)", re.IGNORECASE)
_OTHER_SIDE = re.compile(
    r"border(?:-left|-right|-bottom)\s{0,3}:\s{0,3}(?!none|0|medium none)", re.IGNORECASE
)
_LABEL = re.compile(r"\s{0,9}([^\s:：][^:：\n]{0,30}?)\s{0,3}[:：]")
_SILENT = frozenset(("head", "script", "style", "title", "template", "noscript", "-comment"))
_MAX_FOUND = 50
_MAX_STEPS = 100_000


def mark_quotes(html: str) -> str:
    """The HTML with its quotations and signatures marked; unchanged if nothing else is left."""
    if not _may_be_marked(html) or is_too_deep(html):
        return html
    tree = LexborHTMLParser(html)
    body = tree.body
    if body is None:
        return html
    groups = list(_quoted_groups(body))
    quoted = [node for group in groups for node in group]
    ids = {node.mem_id for node in quoted}
    signatures = [n for n in body.css(_SIGNATURES)[:_MAX_FOUND] if not _is_inside(n, ids)]
    if not (quoted or signatures) or not _has_rest(body, [*quoted, *signatures]):
        return html
    for group in groups:
        _wrap_in_quote(group)
    for node in signatures[:1]:
        if not _text_before(node).endswith("--"):
            _insert_before(node, "<div>-- </div>")
    return tree.html or html


def _quoted_groups(body: LexborNode) -> Iterator[list[LexborNode]]:
    """The outermost elements that hold what is quoted; those of a group are adjacent."""
    ids: set[int] = set()
    for node in body.css(_QUOTES)[:_MAX_FOUND]:
        if not _is_inside(node, ids) and not is_forward(_text(node)[:200].strip()):
            ids.add(node.mem_id)
            yield from _answered_groups(node) or [[node]]
    start = _first_break(body)
    if start is not None and not _is_inside(start, ids):
        for group in _following_groups(start, body):
            if rest := [node for node in group if node.mem_id not in ids]:
                yield rest
    elif not ids and (last := _last_quote(body)) is not None:
        yield [last]


def _answered_groups(node: LexborNode) -> list[list[LexborNode]]:
    """The quotations of an element that holds the answers to them too, else none.

    The first one begins with its attribution.
    """
    children: list[LexborNode] = []
    child = node.first_child if node.tag == "div" else None
    while child is not None and len(children) < _MAX_FOUND:
        children.append(child)
        child = child.next
    quotes = [at for at, one in enumerate(children) if _is_quote(one)]
    answers = children[quotes[0] :] if quotes else []
    if not any(_text(one).strip() for one in answers if not _is_quote(one)):
        return []
    return [children[: quotes[0] + 1], *([children[at]] for at in quotes[1:])]


def _is_quote(node: LexborNode) -> bool:
    is_gmail = node.tag == "div" and "gmail_quote" in (node.attributes.get("class") or "")
    return node.tag == "blockquote" or is_gmail


def _first_break(body: LexborNode) -> LexborNode | None:
    """The first element after which all is quoted."""
    marked = body.css(_BREAKS)[:1]
    if marked:
        return marked[0]
    for node in body.css("div[style*=border], td[style*=border], p[style*=border]")[:_MAX_FOUND]:
        style = node.attributes.get("style") or ""
        if (
            _ONLY_TOP.search(style)
            and not _OTHER_SIDE.search(style)
            and _begins_headers(_text(node))
        ):
            return node
    return None


def _begins_headers(text: str) -> bool:
    """Whether a text begins with `From:`, in any language."""
    label = _LABEL.match(text[:100])
    return label is not None and HEADERS.get(label[1].strip(" *").lower()) in ("from", "date")


def _following_groups(node: LexborNode, body: LexborNode) -> Iterator[list[LexborNode]]:
    """The node with what follows it, and what follows each of its ancestors."""
    group, at = [node], node
    while at.mem_id != body.mem_id:
        following = at.next
        while following is not None:
            group.append(following)
            following = following.next
        if group:
            yield group
        if at.parent is None:
            return
        group, at = [], at.parent


def _last_quote(body: LexborNode) -> LexborNode | None:
    """A blockquote that nothing follows."""
    quotes = body.css("blockquote")
    if not quotes:
        return None
    last: LexborNode = quotes[-1]
    at: LexborNode | None = last
    while at is not None and at.mem_id != body.mem_id:
        last = at if at.tag == "blockquote" else last
        at = at.parent
    behind = (
        node
        for group in _following_groups(last, body)
        for node in group
        if node.mem_id != last.mem_id
    )
    return None if any(_text(node).strip() for node in behind) else last


def _has_rest(body: LexborNode, marked: list[LexborNode]) -> bool:
    """Whether text is left outside of what is marked."""
    ids = {node.mem_id for node in marked}
    node: LexborNode | None = body.child
    for _ in range(_MAX_STEPS):
        if node is None:
            return False
        is_open = node.mem_id not in ids and (node.tag or "") not in _SILENT
        if is_open and node.tag == "-text" and (node.text_content or "").strip():
            return True
        node = _next_node(node, body, enters=is_open)
    return True


def _next_node(node: LexborNode, body: LexborNode, *, enters: bool) -> LexborNode | None:
    """The next node in the order of the document."""
    if enters and node.first_child is not None:
        return node.first_child
    at: LexborNode | None = node
    while at is not None and at.mem_id != body.mem_id:
        if at.next is not None:
            return at.next
        at = at.parent
    return None


def _is_inside(node: LexborNode, ids: set[int]) -> bool:
    """Whether a node is one of these, or inside one."""
    at: LexborNode | None = node if ids else None
    while at is not None:
        if at.mem_id in ids:
            return True
        at = at.parent
    return False


def _text_before(node: LexborNode) -> str:
    """The text right before an element, within its parent."""
    for _ in range(3):
        at = node.prev
        for _ in range(5):
            if at is None:
                break
            if text := _text(at).strip():
                return text
            at = at.prev
        if node.parent is None:
            break
        node = node.parent
    return ""


def _text(node: LexborNode) -> str:
    if node.tag == "-text":
        return node.text_content or ""
    return "" if (node.tag or "") in _SILENT else node.text(deep=True) or ""


def _insert_before(node: LexborNode, html: str) -> LexborNode | None:
    """Put an element before a node; returns it."""
    body = LexborHTMLParser(html).body
    if body is None or body.first_child is None:
        return None
    node.insert_before(body.first_child)
    return node.prev


def _wrap_in_quote(group: list[LexborNode]) -> None:
    """Put adjacent nodes into a quotation."""
    wrapper = _insert_before(group[0], '<blockquote type="cite"></blockquote>')
    if wrapper is None:
        return
    for node in group:
        wrapper.insert_child(node)
        node.decompose()
