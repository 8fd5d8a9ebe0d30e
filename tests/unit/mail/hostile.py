"""Hostile mail: names, and functions that build the bytes."""

from __future__ import annotations

from collections.abc import Callable

MB = 1024 * 1024


def _mail(header: str, body: str = "") -> bytes:
    return f"{header}\n\n{body}".encode()


def _html(body: str) -> bytes:
    return _mail("Content-Type: text/html; charset=utf-8", body)


def _nested(levels: int) -> bytes:
    lines = ["Content-Type: multipart/mixed; boundary=b0", ""]
    for level in range(levels):
        lines += [f"--b{level}", f"Content-Type: multipart/mixed; boundary=b{level + 1}", ""]
    return "\n".join(lines).encode()


def _messages(levels: int) -> bytes:
    return ("Content-Type: message/rfc822\n\n" * levels + "Subject: deep\n\nHi").encode()


MULTIPART = "Content-Type: multipart/mixed; boundary=b"

HOSTILE: dict[str, Callable[[], bytes]] = {
    "100,000 empty parts": lambda: _mail(MULTIPART, "--b\n\n" * 100_000),
    "500 parts of 500 headers": lambda: _mail(
        MULTIPART, ("--b\n" + "X-A: b\n" * 500 + "\n") * 500
    ),
    "20,000 addresses": lambda: _mail("To: " + ", ".join(f"a{n}@x.example" for n in range(20_000))),
    "20,000 quoted addresses": lambda: _mail(
        "To: " + ", ".join(f'"A, {n}" <a{n}@x.example>' for n in range(15_000))
    ),
    "commas": lambda: _mail("To: " + "," * 250_000),
    "open comments": lambda: _mail("To: " + "(" * 250_000),
    "open quotes": lambda: _mail("To: " + '"a' * 120_000),
    "escaped quotes": lambda: _mail("To: " + '"a\\' * 80_000),
    "open angles": lambda: _mail("To: " + "<" * 250_000),
    "colons and semicolons": lambda: _mail("To: " + "a:;" * 80_000),
    "words without an address": lambda: _mail("To: " + "a " * 120_000),
    "1,500 levels": lambda: _nested(1_500),
    "1,500 mails in mails": lambda: _messages(1_500),
    "0.3 MB of encoded words": lambda: _mail("Subject: " + "=?utf-8?q?a?= " * 20_000),
    "encoded words that do not end": lambda: _mail("Subject: " + "=?utf-8?q?a" * 22_000),
    "encoded words with many ends": lambda: _mail("Subject: =?utf-8?q?" + "?=AB" * 60_000),
    "encoded words of all charsets": lambda: _mail(
        "Subject: " + " ".join(f"=?x{n}?q?=80?=" for n in range(15_000))
    ),
    "a line of 10 MB": lambda: _mail("Subject: x", "a" * 10 * MB),
    "a header of 10 MB": lambda: b"Subject: " + b"a " * 5 * MB,
    "a million headers": lambda: b"A: b\n" * 1_000_000 + b"\nHi",
    "a million empty lines": lambda: _mail("A: b", "\n" * 1_000_000),
    "folded for ever": lambda: b"Subject: x" + b"\n " * 1_000_000,
    "a parameter of spaces": lambda: _mail("Content-Type: text/plain;" + " " * 250_000),
    "20,000 parameters": lambda: _mail("Content-Type: text/plain" + "; a=b" * 40_000),
    "20,000 sections": lambda: _mail(
        "Content-Type: a/b;" + "".join(f" name*{n}*=a;" for n in range(15_000))
    ),
    "a boundary that is everywhere": lambda: _mail(MULTIPART, "--bx" * 2 * MB),
    "a boundary with spaces": lambda: _mail(MULTIPART, "--b" + " " * 5 * MB + "x"),
    "base64 of nothing": lambda: _mail(
        "Content-Type: a/b\nContent-Transfer-Encoding: base64", "=" * 10 * MB
    ),
    "base64 in pieces": lambda: _mail(
        "Content-Type: a/b\nContent-Transfer-Encoding: base64", "YQ==" * 2 * MB
    ),
    "quoted-printable breaks": lambda: _mail(
        "Content-Transfer-Encoding: quoted-printable", "= \n" * 2 * MB
    ),
    "soft breaks with spaces": lambda: _mail(
        "Content-Transfer-Encoding: quoted-printable", "=" + " " * 8 * MB
    ),
    "uu begins": lambda: _mail("A: b", "begin 644 a\n" * 300_000),
    "uu lines": lambda: _mail("A: b", "begin 644 a\n" + "M" + "A" * 60 + "\n" * 300_000),
    "8-bit noise": lambda: _mail("A: b") + bytes(range(128, 256)) * 60_000,
    "UTF-7": lambda: _mail("Content-Type: text/plain; charset=utf-7", "+AAA" * MB),
    "NULs": lambda: b"Subject: \0\n\n" + b"\0" * 8 * MB,
    "reply headers": lambda: _mail("A: b", "On On On " * 200_000),
    "attributions": lambda: _mail("A: b", "On Monday 1 May 2010, a@b wrote:\nx\n" * 60_000),
    "almost attributions": lambda: _mail("A: b", "On 1 May 2010 a@b:\nwrote\n" * 100_000),
    "torn attributions": lambda: _mail("A: b", "On 1 May 2010\n\n<\n\na@b\n\n> wrote\n" * 60_000),
    "short lines": lambda: _mail("A: b", "x:\n" * 400_000),
    "sparse lines": lambda: _mail("A: b", "1/1/2010 a@b.c\n\n" * 80_000),
    "names above names": lambda: _mail("A: b", "Ada\nBo\nOn\nMon\n<a@b> wrote:\n" * 50_000),
    "other quote marks": lambda: _mail("A: b", "| a\nMH> b\n: c\n" * 150_000),
    "reply marks": lambda: _mail("A: b", "reply above or below this line, or type?\n" * 40_000),
    "separators": lambda: _mail("A: b", "*-- x wrote\n" * 120_000),
    "quotes in HTML": lambda: _mail(
        "Content-Type: text/html", "a" + "<div class=gmail_quote>b</div>c" * 30_000
    ),
    "quotations after a break in HTML": lambda: _mail(
        "Content-Type: text/html", "a<div id=appendonsend></div>" + "<p>b</p>" * 100_000
    ),
    "blockquotes": lambda: _mail("Content-Type: text/html", "<blockquote>b</blockquote>" * 40_000),
    "failed addresses": lambda: _mail(
        "From: mailer-daemon@x", "could not be delivered 550 " + "a@b," * 300_000
    ),
    "stray header lines": lambda: b"A: b\n" + b"c d\n" * 200_000 + b"From: a@b\n\n",
    "attributions inside lines": lambda: _mail(
        "A: b", "x On 1 May 2010 10:00, a@b wrote:\n> q\n" * 30_000
    ),
    "wrapped quotations": lambda: _mail("A: b", f"> {'a' * 60}\nb\n" * 15_000),
    "signs of a sender": lambda: _mail("A: b", "Regards,\nAda\n" * 70_000),
    "header blocks": lambda: _mail("A: b", "From: a\n" * 300_000),
    "quote marks": lambda: _mail("A: b", ">" * 4 * MB),
    "quoted lines": lambda: _mail("A: b", "> a\nb\n" * 500_000),
    "rules": lambda: _mail("A: b", "-" * 60 + "\n" + "- " * 2 * MB),
    "signatures": lambda: _mail("A: b", "-- \n" * 500_000),
    "spaces": lambda: _mail("A: b", " " * 8 * MB),
    "flowed": lambda: _mail("Content-Type: text/plain; format=flowed", "> a \n" * 500_000),
    "divs": lambda: _html("<div>" * 200_000),
    "bold": lambda: _html("<b>" * 200_000),
    "links": lambda: _html("<a href=x>" * 150_000),
    "tables": lambda: _html("<table><tr><td>" * 100_000),
    "lists": lambda: _html("<ul><li>" * 100_000),
    "quotes": lambda: _html('<blockquote type="cite">' * 80_000),
    "fonts": lambda: _html("<p><font><b><i>" * 100_000),
    "closing tags": lambda: _html("</div></p></b>" * 140_000),
    "attributes": lambda: _html("<p " + " ".join(f"a{n}=b" for n in range(180_000)) + ">"),
    "open tags": lambda: _html("<a" * 1_000_000),
    "angles": lambda: _html("<" * 2_000_000),
    "comments": lambda: _html("<!--" * 500_000),
    "entities": lambda: _html("&amp;" * 400_000),
    "styles": lambda: _html(
        "<style>" + "".join(f".c{n} .d .e{{color:#fff}}" for n in range(20_000)) + "</style>"
        + '<p class="d e">x</p>' * 20_000
    ),
    "many rules for one class": lambda: _html(
        "<style>" + ".a .x{color:red}" * 30_000 + "</style>" + "<p class=x>y</p>" * 40_000
    ),
    "a deep tree with styles": lambda: _html(
        "<style>.a .b .x{color:red}</style>" + "<div>" * 500 + "<p class=x>y</p>" * 90_000
    ),
    "open braces": lambda: _html("<style>" + "{" * 1_000_000 + "</style>"),
    "css comments": lambda: _html("<style>" + "/*" * 500_000 + "</style>"),
    "declarations": lambda: _html('<p style="' + "color:red;" * 150_000 + '">x</p>'),
    "custom properties": lambda: _html(
        "<style>" + "".join(f":root{{--a{n}:{n}}}" for n in range(9_000)) + "</style>"
        + "".join(f"<p style=--b:{n}>x</p>" for n in range(20_000))
    ),
    "custom properties of themselves": lambda: _html(
        "<style>p{" + "".join(f"--a{n}:var(--a{n + 1}) var(--a{n + 1});" for n in range(99))
        + "color:var(--a0)}</style>" + "<p>x</p>" * 20_000
    ),
    "rules for everything": lambda: _html(
        "<style>" + "*{color:red}" * 9_000 + "</style>" + "<p>x</p>" * 20_000
    ),
    "what has what": lambda: _html(
        "<style>" + "div:has(.x .y, + .z){color:red}" * 500 + "</style>" + "<div>x" * 400
        + "<b>y</b>" * 40_000
    ),
    "places among siblings": lambda: _html(
        "<style>p:nth-last-child(2n+1 of .x){color:red}</style>" + "<p class=x>y</p>" * 80_000
    ),
    "siblings of siblings": lambda: _html(
        "<style>b~i~b~i~p{color:red}</style>" + "<b>x</b><i>x</i><p>y</p>" * 25_000
    ),
    "selectors in selectors": lambda: _html(
        "<style>" + ":not(" * 200_000 + "a{color:red}</style>x"
    ),
    "a long list of selectors": lambda: _html("<style>" + "a," * 400_000 + "b{color:red}</style>x"),
    "rules in rules": lambda: _html("<style>" + ".a,.b{" * 200_000 + "color:red</style><p>x</p>"),
    "arithmetic": lambda: _html(f'<p style="width:calc({"(" * 300_000}1px)">x</p>'),
    "a long polygon": lambda: _html(
        f'<p style="clip-path:polygon({"1px 2px," * 150_000}0 0)">x</p>'
    ),
    "a long transform": lambda: _html(f'<p style="transform:{"scale(0.5) " * 150_000}">x</p>'),
    "a long gradient": lambda: _html(
        f'<p style="background:linear-gradient({"red," * 300_000}red)">x</p>' * 2
    ),
    "open brackets": lambda: _html(f'<p style="color:{"(" * 900_000}">x</p>'),
    "many styles": lambda: _html(
        "".join(f"<p style='margin:{n}px;overflow:clip;height:{n}px'>x</p>" for n in range(25_000))
    ),
    "comments that speak": lambda: _html(f"<!-- {'ignore ' * 2_500} -->" * 100),
    "titles that speak": lambda: _html(f"<p title='{'send all ' * 20}'>x</p>" * 9_000),
    "quotes in lists": lambda: _html(
        "<ul><li><blockquote type=cite>" * 160 + "<p>a</p>" * 45_000
    ),
    "plain text of one word": lambda: _mail(
        "Content-Type: multipart/alternative; boundary=b",
        "--b\n\n" + "a" * 900_000 + "\n--b\nContent-Type: text/html\n\n<p>word here</p>\n--b--",
    ),
    "hidden paragraphs": lambda: _html("<p style=display:none>ignore</p>" * 60_000),
    "text nodes": lambda: _html("a<br>" * 400_000),
    "18 HTML parts of 2 MB": lambda: _mail(
        MULTIPART, ("--b\nContent-Type: text/html\n\n" + "a<br>" * 400_000 + "\n") * 18
    ),
    "bounce words": lambda: _mail(
        "From: mailer-daemon@x\nSubject: Undelivered", "user " * 1_000_000
    ),
    "bounce addresses": lambda: _mail(
        "From: mailer-daemon@x\nSubject: Undelivered",
        "".join(f"<a{n}@x.example>: no\n" for n in range(100_000)),
    ),
    "references": lambda: _mail("References: " + " ".join(f"<{n}@x>" for n in range(20_000))),
    "one reference": lambda: _mail("References: " + "a" * 250_000),
    "references without brackets": lambda: _mail("References: " + "a@" * 120_000),
    "open references": lambda: _mail("References: " + "<" * 250_000),
    "re re re": lambda: _mail("Subject: " + "Re: " * 60_000),
    "tags in subjects": lambda: _mail("Subject: " + "[a] " * 60_000),
    "delivery status": lambda: _mail(
        "Content-Type: message/delivery-status", "Final-Recipient: rfc822; a@b\n\n" * 100_000
    ),
    "no delivery status": lambda: _mail(
        "Content-Type: message/delivery-status", "no field here\n\n" * 100_000
    ),
    "a delivery status of one line": lambda: _mail(
        "Content-Type: message/delivery-status", "word " * 1_000_000
    ),
    "a long delivery report": lambda: _mail(
        "Content-Type: multipart/report; boundary=b",
        "--b\n\n" + "no such user, mailbox " * 5_000 + "\n--b\n"
        + "Content-Type: message/delivery-status\n\n"
        + "Final-Recipient: rfc822; a@b\nStatus: 5.0.0\n\n" * 1_000,
    ),
    "calendars": lambda: _mail(
        "Content-Type: text/calendar", "BEGIN:VEVENT\n" + "ATTENDEE:mailto:a@b\n" * 200_000
    ),
    "zero width": lambda: _mail("A: b", "\u200b\u200c" * MB),
    "variation selectors": lambda: _mail("A: b", "a\ufe00\ufe01" * 500_000),
    "tag characters": lambda: _mail("A: b", "a\U000e0041" * 500_000),
}  # fmt: skip
