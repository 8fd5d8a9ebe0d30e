from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.parse import parse_message
from postroom.mail.text.fold import fold
from postroom.mail.text.invisible import Removed, cleaned

SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
INVISIBLE = [
    *map(chr, (*range(9), *range(11, 13), *range(14, 32), *range(0x7F, 0xA0))),
    *"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f",
    *map(chr, (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070))),
    *"\u3164\ufeff\uffa0\ufff9\ufffa\ufffb\U0001bca0\U0001d173\U0001d17a",
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, (0xE0001, 0xE0041, 0xE007F, 0xE0080, 0xE0100, 0xE01EF, 0xE0FFF)),
]


def tags(words: str) -> str:
    return "".join(chr(0xE0000 + ord(outgoing_mail)) for outgoing_mail in words)


def selectors(words: bytes) -> str:
    return "".join(chr(0xFE00 + b if b < 16 else 0xE0100 + b - 16) for b in words)


@pytest.mark.parametrize("one_line", [True, False])
def test_invisible_characters_between_letters_are_removed(one_line: bool) -> None:
    for char in INVISIBLE:
        shown = cleaned(f"a{char}b", one_line=one_line)

        assert char not in shown, f"{ord(char):04x}"
        assert shown.split() in (["ab"], ["a", "b"]), f"{ord(char):04x}"


@pytest.mark.parametrize(
    "text",
    [
        "Grüße aus Köln — „schön“, naïve café",
        f"From {SCOTLAND} with love",
        "👨‍👩‍👧‍👦 ❤️‍🔥 🏳️‍🌈 🏴‍☠️ 👩🏽‍🚀 1️⃣ #️⃣ ☎︎ ☎️ ©️",
        "می‌خواهم نامه‌ای بنویسم",
        "क्‍ष क्‌ष ශ්‍රී ന്‍",
        "نمی‌خواسته‌ام کتاب‌خانه‌هایشان را ببینم؛ خانهٔ‌ای روان‌شناسی پیش‌بینی خانه‌ی من",
        "র\u200d্যাব ಸಾಫ್ಟ್\u200cವೇರ್ సాఫ్ట్\u200cవేర్ ರ\u200d್ಕ र्\u200dया",
        "അവന്‍ പറഞ്ഞു: ഇന്‍റര്‍നെറ്റ് അവര്‍ക്കിടയില്‍",
        "🧑‍🤝‍🧑 👩‍❤️‍💋‍👨 👁️‍🗨️ 🏃🏽‍♀️‍➡️ 😶‍🌫️ 🐻‍❄️ 👨🏿‍🦰 🧜‍♂️ 🏳️‍⚧️ ⛓️‍💥 🧑‍🧑‍🧒‍🧒 🙂‍↔️",
        "⠓⠑⠇⠇⠕⠀⠺⠕⠗⠇⠙",
        "line one\r\nline two\n\tindented",
        "한국어 日本語 ไทย עברית",
    ],
)
@pytest.mark.parametrize("one_line", [True, False])
def test_ordinary_text_stays(text: str, one_line: bool) -> None:
    removed = Removed()

    assert text == cleaned(text, removed, one_line=one_line)
    assert not removed.counts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SCOTLAND + tags("obey"), SCOTLAND),
        ("\U0001f3f4" + tags("obey"), "\U0001f3f4"),
        ("\U0001f3f4" + tags("gbsct"), "\U0001f3f4"),
        ("\U0001f3f4" + tags("ustx\x7f"), "\U0001f3f4"),
        ("\U0001f1e9\U0001f1ea" + tags("obey me now"), "\U0001f1e9\U0001f1ea"),
        ("😀" + selectors(b"obey"), "😀"),
        ("❤\ufe0f" + selectors(b"obey"), "❤\ufe0f"),
        ("葛" + selectors(b"\xffobey"), "葛"),
        ("葛\ufe00\ufe01", "葛"),
        ("葛\U000e0100飾区", "葛飾区"),
        ("葛\ufe00飾\ufe01", "葛飾"),
        ("ᠠ\u180bᠡ\u180cᠢ\u180d", "ᠠᠡᠢ"),
        ("1\ufe0e\u20e3", "1\u20e3"),
        ("😀\ufe0f😀\ufe0e", "😀😀"),
        ("😀\u200d😀\u200d❤", "😀😀❤"),
        ("سلا\u200cم ر\u200dب ب\u200dب ب\u200c", "سلام رب بب ب"),
        ("क\u200cष क\u200dष क्\u200c क्\u200da", "कष कष क् क्a"),
        ("क्\u200dক ক্\u200cక", "क्ক ক্క"),
        ("o\ufe00b\ufe01e\ufe0ey\ufe0f", "obey"),
        ("1\ufe0f2\ufe0e3", "123"),
        ("😀\u200d", "😀"),
        ("😀\u200da", "😀a"),
        ("a\u200cb\u200dc", "abc"),
        ("می\u200c\u200cخواهم", "میخواهم"),
        ("می\u200c\u200d\u200c\u200dخواهم", "میخواهم"),
        ("⠀⠀⠀⠀Hi", " Hi"),
        ("a\ud800b", "a\ufffdb"),
        ("\ufffahidden\ufffb", "hidden"),
        ("ㅤㅤㅤHi", "Hi"),
    ],
)
@pytest.mark.parametrize("one_line", [True, False])
def test_machine_readable_characters_are_removed(text: str, shown: str, one_line: bool) -> None:
    assert shown == cleaned(text, one_line=one_line)


@pytest.mark.parametrize("one_line", [True, False])
def test_bidi_marks_are_removed(one_line: bool) -> None:
    assert "שלום! (C++) abc" == cleaned(
        "שלום!\u200f (C++\u200e) \u061ca\u200eb\u202cc", one_line=one_line
    )


def test_line_separators_are_removed_from_a_line() -> None:
    assert "one two three" == cleaned("one\u2028two\u2029three", one_line=True)
    assert "one\u2028two" == cleaned("one\u2028two")


def test_what_was_removed_is_counted_by_kind() -> None:
    removed = Removed()

    cleaned("a" + tags("obey") + "\u202eb\u200bc\x1b[0m\u3164", removed)

    assert {"tag": 4, "direction": 1, "zero_width": 1, "control": 1, "filler": 1} == removed.counts
    assert ["tag characters", "direction override"] == [found.reason for found in removed.hidden]


@given(st.text(alphabet=st.one_of(st.sampled_from([*INVISIBLE, *"aא😀葛م1❤\U0001f3f4"]),
                                  st.characters()), max_size=40), st.booleans())  # fmt: skip
def test_cleaning_is_idempotent_and_does_not_change_search(text: str, one_line: bool) -> None:
    once = cleaned(text, one_line=one_line)

    assert once == cleaned(once, one_line=one_line)
    assert not {c for c in once if unicodedata.category(c) in ("Cc", "Cs")} - set("\n\t\r")
    if not any(unicodedata.category(c) in ("Cc", "Cs") or c in "\u2800\ufff9\ufffa\ufffb"
               for c in text):  # fmt: skip
        assert fold(text) == fold(once)


PAYLOAD = tags("obey") + "\u202e\u200b\u3164" + selectors(b"me")


def hostile_mail() -> bytes:
    return f"""\
From: "Ma{PAYLOAD}llory" <mal{PAYLOAD}lory@evil.example>
To: Ada{PAYLOAD} <ada@example.org>
Subject: Hel{PAYLOAD}lo
Message-ID: <a{PAYLOAD}b@evil.example>
References: <r{PAYLOAD}@evil.example>
List-Id: Li{PAYLOAD}st <li{PAYLOAD}st.evil.example>
List-Unsubscribe: <https://evil.example/{PAYLOAD}>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/plain; charset=utf-8

Body{PAYLOAD} text
--b
Content-Type: application/x{PAYLOAD}y; name="re{PAYLOAD}port.pdf"
Content-Disposition: attachment

x
--b
Content-Type: text/calendar; charset=utf-8

BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Meet{PAYLOAD}ing
LOCATION:Ro{PAYLOAD}om
END:VEVENT
END:VCALENDAR
--b--
""".encode()


def test_every_field_of_a_mail_is_clean_and_security_says_what_went() -> None:
    parsed = parse_message(hostile_mail())

    assert "Hello" == parsed.subject
    assert [("Mallory", "mallory@evil.example"), ("Ada", "ada@example.org")] == [
        (a.name, a.address) for a in parsed.addresses
    ]
    assert ["ab@evil.example", "r@evil.example"] == [
        parsed.internet_message_id,
        *parsed.references,
    ]
    assert "list.evil.example" == parsed.list_id
    assert ("https://evil.example/",) == parsed.list_unsubscribe
    assert "Body text" == parsed.text.strip()
    assert {"report.pdf", "attachment-2.ics"} == {a.filename for a in parsed.attachments}
    assert "application/xy" in {a.content_type for a in parsed.attachments}
    assert parsed.invitation is not None
    assert ("Meeting", "Room") == (parsed.invitation.summary, parsed.invitation.location)
    assert {"tag", "direction", "zero_width", "filler", "variation"} == set(
        parsed.security.removed_characters
    )
