"""Everything that is omitted for an agent is marked in the document, with the reason."""

from __future__ import annotations

import re
from html import unescape

import pytest

from postroom.mail.html.html import html_for_browser
from postroom.mail.html.marks import MarkedHtml, mark_html
from postroom.mail.parse import ParsedMessage, parse_message, uncleaned_text
from postroom.mail.quoting import line_kinds, split_reply
from postroom.mail.text.invisible import cleaned
from postroom.mail.text.marks import AgentText, how_hidden, kinds_by_line, mark_text, removed_in
from tests.unit.mail.hidden_tricks import SECRET, SHOWN, TRICKS
from tests.unit.mail.test_hidden_text import html_mail
from tests.unit.mail.test_replies import ATTRIBUTIONS, QUOTE

BOX = re.compile(
    r'<span class="mark (\w+)" id="mark-(\d+)"><span class="label">\d+ · ([^<]*)</span>'
    r'(?: <span class="words">([^<]*)</span>)?</span>'
)
REPLIES = [
    f"Yes, gladly.{gap}{attribution}\n\n{QUOTE}\n\nAnd more.\n-- \nBo"
    for attribution in ATTRIBUTIONS
    for gap in ("\n\n", " ")
]
PICTURE = "data:image/png;base64,AAAA"


def marked(html: str) -> tuple[ParsedMessage, MarkedHtml]:
    parsed = parse_message(html_mail(html))
    agent_text = AgentText.of(parsed.text, parsed.new_text)
    return parsed, mark_html(html, {"own@x": PICTURE}, agent_text)


def boxes(html: str) -> list[tuple[str, str, str]]:
    """Kind, label and words of each mark."""
    return [(kind, unescape(label), unescape(words)) for kind, _, label, words in BOX.findall(html)]


@pytest.mark.parametrize("html", [html for _, html in TRICKS], ids=[name for name, _ in TRICKS])
def test_each_way_of_hiding_that_is_known_is_marked_with_its_reason(html: str) -> None:
    parsed, found = marked(html)

    shown = " ".join((label + words) for _, label, words in boxes(found.html))
    for hidden in parsed.security.hidden_text:
        assert "mallory" not in parsed.text
        is_by_style = hidden.reason in {mark.reason for mark in found.marks}
        assert SECRET in shown or "that spell" in shown or "ZERO WIDTH" in shown
        assert not is_by_style or how_hidden(hidden.reason) in shown
    assert SHOWN in found.html


def test_a_mark_is_where_the_text_stands_and_in_the_list() -> None:
    _, found = marked('<p>One</p><div style="display:none">Send<b> all</b></div><p>Two</p>')

    assert found.html.index("One") < found.html.index("Send all") < found.html.index("Two")
    (mark,) = found.marks
    assert (1, "hidden", "display", 8, False) == (
        mark.number, mark.kind, mark.reason, mark.chars, mark.is_in_agent_text
    )  # fmt: skip
    assert "not displayed because of its style · 8 characters, not given to the agent" in mark.label


def test_text_that_the_agent_gets_elsewhere_is_not_marked() -> None:
    html = f"<p>Hi</p><p style='font-size:0'>{SECRET}</p>"
    found = mark_html(html, {}, AgentText.of(f"Hi\n\n{SECRET}", "Hi"))

    ((_, label, words),) = boxes(found.html)
    assert SECRET == words
    assert "the agent gets the same text elsewhere" in label
    assert "not given" not in label


def test_pictures_and_pixels_name_their_host_and_are_not_loaded() -> None:
    html = (
        "Hi<img src='https://t.example/p?id=7' width=1 height=1><img src=//shop.example/a alt=Shop>"
        "<img src=cid:own@x alt=Logo><img src=cid:none><img src=data:image/png;base64,xx>"
    )
    _, found = marked(html)

    assert [
        ("pixel", "Tracking pixel, not loaded: t.example", ""),
        ("picture", "Picture, not loaded: shop.example", "Shop"),
    ] == boxes(found.html)
    assert [PICTURE] == re.findall(r'src="([^"]*)"', found.html)


def test_quoted_mail_and_signature_are_marked_as_read_mail_leaves_them_out() -> None:
    html = (
        "<div>Fine.</div><div>-- <br>Bo<br>Example Ltd</div><div>On Mon, 2 Mar 2026 at 10:00, Ana "
        "Lee &lt;ana@example.com&gt; wrote:</div><blockquote type=cite>Shall we?</blockquote>"
    )
    parsed, found = marked(html)

    assert "Fine." == parsed.new_text
    assert ["signature", "quoted"] == [kind for kind, _, _ in boxes(found.html)]
    assert ["-- ", "Bo", "Example Ltd"] == left_out(found.html)[:3]
    assert "Shall we?" in left_out(found.html)
    assert '<span class="left-out">Fine.' not in found.html


def left_out(html: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'<span class="left-out">([^<]*)</span>', html)]


@pytest.mark.parametrize(
    "fake",
    [
        '<span class="mark hidden" id="mark-1"><span class="label">1 · fake</span></span>',
        "<p class=mark id=mark-7>x</p>",
        '<svg><style><span class="mark" id="mark-1"></style></svg>',
        '<noscript><p title="</noscript><span class=mark id=mark-2>x</span>">y</noscript>',
        "<math><mtext><table><mglyph><style><!--</style><span class=mark id=mark-3>x</span>",
        '<p title="--&gt;<span class=mark>x">x</p>',
        "&lt;span class=mark id=mark-4&gt;x&lt;/span&gt;",
    ],
)
def test_a_mail_cannot_imitate_a_mark(fake: str) -> None:
    _, found = marked(f"<p>Hello</p>{fake}")

    assert 0 == len(found.marks)
    assert [] == re.findall(r"<[^>]*(?:class|id)=[^>]*>", found.html)


@pytest.mark.parametrize(
    ("css", "kept"),
    [
        ("display:none", ""),
        ("d\\69splay:none;color:red", "color:red"),
        ("display:inline-block;padding:4px 8px", "display:inline-block;padding:4px 8px"),
        ("margin-left:-9999px;text-align:center", "text-align:center"),
        ("margin:0 auto", "margin:0 auto"),
        ("padding-top:99999px", ""),
        ("width:0", ""),
        ("max-width:600px", "max-width:600px"),
        ("position:absolute;left:-999px", ""),
        ("line-height:0;letter-spacing:-30px;height:0;vertical-align:-900px", ""),
        ("background-color:#ffffff;color:#123456", "background-color:#ffffff;color:#123456"),
        ("background:url(https://evil.example/a)", ""),
        ("font-size:calc(0px)", ""),
        ('color:red";x', ""),
    ],
)
def test_styles_that_could_hide_or_move_a_mark_are_dropped(css: str, kept: str) -> None:
    _, found = marked(f"<p style='{css}'>Hello</p>")

    assert kept == "".join(re.findall(r'style="([^"]*)"', found.html))


def test_html_nested_too_deeply_is_shown_as_text() -> None:
    _, found = marked("<div>" * 2_000 + "<b onclick=x>deep</b>")

    assert "<pre>deep</pre>" == found.html


def test_a_mail_with_very_many_hidden_texts_is_marked_up_to_a_limit() -> None:
    html = "".join(f"<p>a</p><p style='display:none'>hidden {n}</p>" for n in range(2_000))

    _, found = marked(html)

    assert 500 == len(found.marks)
    assert "There may be more than the 500 marks" in found.html


def test_invisible_characters_are_named_in_place() -> None:
    tags = "".join(chr(0xE0000 + ord(char)) for char in "send it all")
    written = f"Hel\u200b\u200blo{tags}\u2060 you\u2028there"

    pieces, marks = mark_text(written)

    assert "Hello youthere" == "".join(piece.text for piece in pieces).replace("\u2028", "")
    assert ["ZERO WIDTH SPACE × 2", "12 tag characters that spell “send it all”"] == [
        mark.label for mark in marks
    ]


@pytest.mark.parametrize(
    "written",
    ["a\u200bb", "\u200b", "x\u2800y", "family 👩\u200d👩\u200d👧 ok\u200d", "a\x0bb", "a\rb",
     "\ufeffhi",
     "\u202eevil\u202c", "⚠\ufe0f\ufe0f!", "نمی\u200cخواهم\u200c\u200c", "a\ud800b"],
)  # fmt: skip
def test_what_was_removed_is_the_difference_to_the_cleaned_text(written: str) -> None:
    shown = cleaned(written)

    pieces = list(removed_in(written, shown))

    assert shown == "".join(text for text, is_removed in pieces if not is_removed)


def test_a_text_with_marks_has_all_of_its_lines() -> None:
    text = "Fine.\n\nOn Mon, 2 Mar 2026 at 10:00, Bo wrote:\n> Old\u200b\n> words\n\nYes\n-- \nAna"

    pieces, marks = mark_text(text, first=5)

    assert text.replace("\u200b", "") == "".join(piece.text for piece in pieces)
    assert [(5, "quoted"), (6, "invisible"), (7, "signature")] == [
        (mark.number, mark.kind) for mark in marks
    ]
    assert ["Fine.\n\n", "Yes\n"] == [piece.text for piece in pieces if piece.mark is None]


@pytest.mark.parametrize("text", REPLIES)
def test_lines_and_parts_of_a_reply_are_the_same_decision(text: str) -> None:
    reply = split_reply(text)
    lines = line_kinds(text)

    for kind, part in (("quoted", reply.quoted_text), ("signature", reply.signature)):
        said = [line.strip() for found, line in lines if found == kind and line.strip()]
        assert [line.strip() for line in part.split("\n") if line.strip()] == said
    assert len(text.split("\n")) == len(kinds_by_line(text))


def test_the_text_as_written_is_the_text_with_invisible_characters() -> None:
    raw = "Subject: x\nContent-Type: text/plain; charset=utf-8\n\nHel\u200blo\n".encode()

    assert "Hel\u200blo" == uncleaned_text(raw)
    assert "Hello" == parse_message(raw).text


@pytest.mark.parametrize(
    ("page", "direction"),
    [
        ("<html dir=rtl><body>{}</body></html>", "rtl"),
        ("<html lang=he><BODY class='a' DIR = \"RTL\">{}", "rtl"),
        ("<html dir='auto'>{}", "auto"),
        ("<html dir=ltr><body>{}", None),
        ("<html data-dir=rtl><p dir=rtl>{}", None),
        ("{}", None),
    ],
)
def test_the_direction_of_a_page_is_kept(page, direction):
    html = page.format("<b>Shalom</b>")

    shown = html_for_browser(html, {}, remote_images=False)
    marked = mark_html(html, {}, AgentText.of("Shalom", "Shalom")).html

    begins = f'<div dir="{direction}">' if direction else "<"
    for found in (shown, marked):
        assert found.startswith(begins)
        assert direction is not None or not found.startswith("<div dir")
