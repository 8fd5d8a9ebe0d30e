"""Strategies that generate mail: valid, invalid, and golden mail with altered bytes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "mail").glob("*.eml"))

NAMES = (
    "From", "To", "Cc", "Bcc", "Reply-To", "Sender", "Subject", "Date", "Message-ID",
    "In-Reply-To", "References", "Content-Type", "Content-Transfer-Encoding", "List-Id",
    "Content-Disposition", "Content-ID", "List-Unsubscribe", "Auto-Submitted", "Return-Path",
    "X-Failed-Recipients", "Received", "", "X Bad",
)  # fmt: skip
VALUES = (
    "text/plain", "text/html; charset=utf-8", "multipart/mixed; boundary=b", "message/rfc822",
    "multipart/alternative; boundary=\"b\"", "multipart/related; boundary=b; type=x",
    "multipart/report; boundary=b", "message/delivery-status", "application/ms-tnef",
    "text/calendar; method=REQUEST", "text/plain; format=flowed; delsp=yes", "text/enriched",
    "base64", "quoted-printable", "x-uuencode", "8bit", "attachment; filename=a.txt", "inline",
    "attachment; filename*0*=utf-8''%41; filename*1=b", "=?utf-8?q?=C3=A9?=", "=?x?b?AA==?=",
    "Ada <ada@example.org>", "a@b, \"c, d\" <e@f>, g:h@i;", "<1@x> <2@x>", "(comment (nested))",
    "Sat, 10 Oct 2026 10:00:00 +0200", "32 Foo 99999 99:99:99 +9999", "auto-replied", "<>",
    "MAILER-DAEMON", "Undelivered Mail Returned to Sender", "Re: Fwd: [x] y",
)  # fmt: skip
LINES = (
    "--b", "--b--", "", "Hello there", "> quoted", "On Sat, Oct 10, 2026, Ada <a@b> wrote:",
    "-----Original Message-----", "From: Ada", "Sent: today", "To: Bob", "-- ", "Regards,",
    "begin 644 a.txt", "#0V%T", "end", "<p style='display:none'>x</p>", "<b>y<table><tr><td>z",
    "BEGIN:VCALENDAR", "BEGIN:VEVENT", "SUMMARY:x", "Final-Recipient: rfc822; a@b", "Status: 5.1.1",
    "JVBERi0xLjQK", "=C3=A9=", "eJ8+Ig==", "550 5.1.1 <a@b> user unknown", "{\"notificationType\"",
)  # fmt: skip

words = st.one_of(st.sampled_from(VALUES), st.text(max_size=40))
fields = st.tuples(st.sampled_from(NAMES), words).map(lambda field: f"{field[0]}: {field[1]}")
line_ends = st.sampled_from(("\n", "\r\n", "\r"))
lines = st.one_of(st.sampled_from(LINES), fields, st.text(max_size=60))


@st.composite
def built(draw: st.DrawFn) -> bytes:
    """A mail of plausible lines in any order."""
    end = draw(line_ends)
    header = draw(st.lists(fields, max_size=12))
    body = draw(st.lists(lines, max_size=40))
    return end.join((*header, "", *body)).encode("utf-8", "surrogatepass")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A golden mail with some bytes removed, repeated or replaced."""
    raw = bytearray(draw(st.sampled_from(GOLDEN)).read_bytes())
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(raw)))
        end = draw(st.integers(start, min(len(raw), start + 80)))
        raw[start:end] = draw(st.one_of(st.binary(max_size=20), st.just(bytes(raw[start:end]) * 2)))
    return bytes(raw)


mails = st.one_of(built(), damaged(), st.binary(max_size=400))

TAGS = (
    "p", "div", "span", "table", "tr", "td", "b", "a href='http://x.example/'", "ul", "li", "ol",
    "blockquote type=cite", "style", "script", "pre", "br", "hr", "img src=http://x/ alt=y",
    "p style='display:none'", "p style='color:#fff'", "font color=white", "template", "svg",
    "p class=x", "title", "!--", "textarea", "select", "math", "iframe srcdoc='<b>'", "dialog",
    "?xml x?",
)  # fmt: skip
pieces = st.one_of(
    st.sampled_from(TAGS).map(lambda tag: f"<{tag}>"),
    st.sampled_from(TAGS).map(lambda tag: f"</{tag.split()[0]}>"),
    st.sampled_from((".x{display:none}", "&lt;", "&#0;", "&#xD800;", "-->", "hello", "\n")),
    st.text(max_size=20),
)
htmls = st.lists(pieces, max_size=60).map("".join)
texts = st.lists(lines, max_size=60).map("\n".join)
