from __future__ import annotations

import re
import subprocess
import sys

import pytest

from postroom.mail.html.html import html_to_text, sanitise_html
from postroom.model.limits import Limits


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("One<br>Two<br><br>Three", "One\nTwo\n\nThree"),
        ("<div>One</div><div>Two</div>", "One\nTwo"),
        ("<p>  Many \n spaces </p>", "Many spaces"),
        ("<b>no</b>space", "nospace"),
        ("<b>a</b> <i>b</i>", "a b"),
        ("<ul><li>One</li><li>Two</li></ul>", "- One\n- Two"),
        ("<ol><li>One</li><li>Two<ul><li>Deep</li></ul></li></ol>", "1. One\n2. Two\n   - Deep"),
        ("<ul><li><p>One</p></li><li>Two</li></ul>", "- One\n- Two"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td></td></tr></table>", "a | b\nc"),
        ("<pre>  x\n    y</pre>", "  x\n    y"),
        ("<h1>Title</h1>Text", "Title\n\nText"),
        ("a<hr>b", "a\n----------\nb"),
        ('<blockquote type="cite">Old<p>Older</p></blockquote>New', "> Old\n>\n> Older\n\nNew"),
        ("<blockquote>Indented</blockquote>", "Indented"),
        ('<a href="https://www.example.org/x">here</a>', "here (example.org)"),
        ('<a href="https://example.org/x">example.org</a>', "example.org"),
        ('<a href="mailto:a@b.org">write</a>', "write"),
        ('<a href="https://evil.example/">bank.example</a>', "bank.example (evil.example)"),
        ("<title>T</title><style>p{}</style><script>x()</script>Text", "Text"),
        ("&lt;b&gt; &amp; caf&eacute;", "<b> & café"),
        ('<img src="cid:a" alt="Only a picture">', "Only a picture"),
        ('Text <img src="cid:a" alt="a picture">', "Text"),
        ("", ""),
        ("<p>unclosed <b>tags", "unclosed tags"),
        ("One <?xml x ?>two", "One two"),
    ],
)
def test_html_is_converted_to_readable_text(html: str, text: str) -> None:
    assert text == html_to_text(html).text


def test_links_are_listed_with_their_targets() -> None:
    links = html_to_text('<a href="https://example.org/confirm?t=1">Confirm</a>').links

    assert [("Confirm", "https://example.org/confirm?t=1")] == [(li.text, li.url) for li in links]


def test_html_beyond_the_limit_is_cut_and_says_so() -> None:
    limits = Limits(html_bytes=20)

    assert () == html_to_text("<p>" + "a" * 17, limits).defects
    assert ("HTML over 20 characters; the rest was not read",) == html_to_text(
        "<p>" + "a" * 18, limits
    ).defects


@pytest.mark.parametrize(
    ("html", "gone"),
    [
        ("<script>alert(1)</script>", "alert"),
        ('<p onclick="alert(1)">x</p>', "onclick"),
        ('<a href="javascript:alert(1)">x</a>', "javascript"),
        ('<img src="https://evil.example/p.gif">', "evil"),
        ('<p style="background:url(https://evil.example/)">x</p>', "evil"),
        ('<div style="background-image:url(//evil.example/)">x</div>', "evil"),
        ("<style>@import 'https://evil.example'</style>", "evil"),
        ('<form action="https://evil.example"><input></form>', "evil"),
        ('<iframe src="https://evil.example"></iframe>', "evil"),
        ("<svg onload=alert(1)><use href='https://evil.example'/></svg>", "evil"),
        ('<meta http-equiv="refresh" content="0;url=https://evil.example">', "evil"),
        ('<link rel="stylesheet" href="https://evil.example">', "evil"),
        ('<base href="https://evil.example">', "evil"),
        ('<video poster="https://evil.example/x"></video>', "evil"),
        ('<table background="https://evil.example/x"><td>x</table>', "evil"),
        ('<a href="https://ok.example" ping="https://evil.example">x</a>', "evil"),
    ],
)
def test_sanitised_html_has_no_scripts_and_no_loads(html: str, gone: str) -> None:
    assert gone not in sanitise_html(html)


def test_sanitised_html_keeps_what_is_harmless() -> None:
    html = '<p style="color:red">Hi <b>you</b> <img src="cid:dot@x" alt="dot"></p>'

    safe = sanitise_html(html)

    assert "<b>you</b>" in safe
    assert 'src="cid:dot@x"' in safe
    assert "color:red" in safe.replace(" ", "")


def test_heavy_libraries_are_only_loaded_for_html() -> None:
    code = (
        "import sys, postroom.mail.parse as p, postroom.mail.compose;"
        "p.parse_message(b'Subject: x\\n\\nplain');"
        "print(sorted({'selectolax', 'nh3', 'chardet'} & set(sys.modules)))"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "[]" == result.stdout.strip()


@pytest.mark.parametrize(
    "html",
    [
        '<img src="https://evil.example/?q=secret">',
        '<a href="https://evil.example/?q=secret">click</a>',
        '<a href="https://evil.example/?q=secret"><img src="https://evil.example/x.png"></a>',
        '<p style="background:url(https://evil.example/?q=secret)">Hi</p>',
        '<video poster="https://evil.example/?q=secret" src="https://evil.example/v"></video>',
        '<object data="https://evil.example/?q=secret"></object>',
        '<link rel="stylesheet" href="https://evil.example/?q=secret">',
        '<meta http-equiv="refresh" content="0;url=https://evil.example/?q=secret">',
        '<table background="https://evil.example/?q=secret"><tr><td>Hi</td></tr></table>',
    ],
)
def test_no_text_or_html_loads_resources(html: str) -> None:
    text, clean = html_to_text(html).text, sanitise_html(html)

    assert "://" not in text
    assert "secret" not in text
    assert not re.search(r"""(src|background|poster|data|url)\s*[=(]\s*["']?https?:""", clean)
    assert "<link" not in clean
    assert "<meta" not in clean
