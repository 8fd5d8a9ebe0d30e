"""Broken headers, odd senders and undeclared charsets, by generators of their siblings."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.mail.message import ParsedMessage, parse_date
from postroom.mail.mime.decoding import decode, decode_unknown
from postroom.mail.parse import parse_message

FROM = "From: Mara <mara@fjord.example>\nSubject: Boats\n"
FOLDED = {
    "DKIM-Signature": ("v=1; d=fjord.example;", "s=k1; h=from:to:subject;", "b=AbC/9+"),
    "Received": ("from a.example", "by b.example with ESMTP", "id 12:30:01 for <x@y.example>;"),
    "References": ("<1@x.example>", "<2@x.example>", "<3@x.example>"),
    "X-Blob": ("QUJD", "REVGR0hJSktM", "TU5PUA=="),
}


def embedded(mail: str) -> str:
    return f"Content-Type: message/rfc822\n\n{mail}"


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("banner", ["", "*** scanned ***\nby the gateway of isle\n"])
@pytest.mark.parametrize("name", FOLDED)
def test_lines_that_lost_their_indentation_continue_the_field(
    name: str, banner: str, line_break: str
) -> None:
    lines = "\n".join(FOLDED[name])
    mail = f"{banner}{name}: {lines}\n{FROM}\nHi".replace("\n", line_break)

    parsed = parse_message(mail.encode())

    assert ("Boats", "Hi") == (parsed.subject, parsed.text)
    assert parsed.sender is not None
    assert "mara@fjord.example" == parsed.sender.address
    assert " ".join(FOLDED[name]) == parsed.header(name)


def test_an_embedded_mail_is_repaired_too() -> None:
    inner = f"X: a\nb c\nd e\n{FROM}\nInside"

    parsed = parse_message(embedded(inner).encode())

    assert "Boats.eml" == parsed.attachments[0].filename
    assert "Inside" in parsed.text


@pytest.mark.parametrize("greeting", ["Hello Bo,", "Liebe Mara!", "note", "PS"])
def test_a_forgotten_blank_line_begins_the_body(greeting: str) -> None:
    parsed = parse_message(f"{FROM}{greeting}\nplease note: the boat\n\nis here".encode())

    assert f"{greeting}\nplease note: the boat\n\nis here" == parsed.text
    assert "Boats" == parsed.subject


def senders(mail: str) -> tuple[str, str]:
    """The From with an address, and the sender."""
    parsed: ParsedMessage = parse_message(f"{mail}Subject: \nSubject: Boats\n\nHi".encode())
    assert "Boats" == parsed.subject
    from_address = next((a.address for a in parsed.addresses if a.role == "from"), "")
    return from_address, parsed.sender.address if parsed.sender else ""


ADDRESS = "mara@fjord.example"


@pytest.mark.parametrize("empty", ["unset", '"Leuchtturm" <>', "", "Leuchtturm"])
def test_the_first_from_with_an_address_counts(empty: str) -> None:
    assert (ADDRESS, ADDRESS) == senders(f"From: {empty}\nFrom: Mara <{ADDRESS}>\n")


@pytest.mark.parametrize("empty", ["", "From: Leuchtturm\n", 'From: "Leuchtturm" <>\n'])
@pytest.mark.parametrize("name", ["Sender", "Reply-To", "Return-Path"])
def test_without_an_author_another_field_names_the_sender(empty: str, name: str) -> None:
    found = senders(f"{empty}{name}: <{ADDRESS}>\n")

    assert ("", ADDRESS) == found


ENGLISH = "Hello Bo,\nthis is a long English text that goes on and on.\n" * 20
WORDS = {
    "gb18030": ("会议改到明天下午三点。", "请看附件", "附件是合同，请查收"),
    "big5": ("會議改到明天下午三點。", "請看附件", "附件是合約，請查收"),
    "cp932": ("会議は明日の三時からです。", "ご確認ください", "資料を送ります"),
    "euc_jp": ("会議は明日の三時からです。", "ありがとうございます"),
    "cp949": ("회의는 내일 오후 세 시입니다.", "감사합니다", "첨부 파일"),
    "cp1251": ("Встреча завтра в три часа", "Спасибо", "Добрый день"),
    "koi8-r": ("Здравствуйте, встреча завтра в три часа",),
    "cp1250": ("Dziękuję za wiadomość, spotkamy się później", "Příliš žluťoučký kůň úpěl",
               "Děkuji, s pozdravem Jiří Dvořák", "Jó reggelt, a fűtés jövő héten jön",
               "Köszönöm szépen, üdvözlettel Erdős Győző"),
    "cp1252": ("Grüße aus Köln, schöne Straße", "ÄRZTE ÄNDERN ÄHNLICH", "L'été à la mer, ça va",
               "El niño comió piñas mañana", "É verdade que não está aí", "På gården står køer",
               "Jørgen, Søren, Bjørn and García", "Ævar Arnfjörð and René Müller",
               "Tere hommikust, õhtul näeme, Jüri"),
    "cp1253": ("Καλημέρα σας, ευχαριστώ πολύ",),
    "cp1254": ("Teşekkürler, görüşürüz yarın",),
}  # fmt: skip
EASTERN = ("gb18030", "big5", "cp949", "cp932")
LINES = [(codec, line) for codec, lines in WORDS.items() for line in lines]


@pytest.mark.parametrize(("codec", "line"), LINES)
def test_a_few_letters_in_a_long_ascii_text_tell_their_charset(codec: str, line: str) -> None:
    data = ENGLISH.encode() + line.encode(codec) + b"\nRegards, Ada\n"

    assert line in decode_unknown(data)


@pytest.mark.parametrize(("codec", "line"), [pair for pair in LINES if pair[0] in EASTERN])
def test_a_raw_subject_tells_its_charset(codec: str, line: str) -> None:
    raw = b"From: a@b.example\nSubject: " + line.encode(codec) + b"\n\nHi"

    assert line == parse_message(raw).subject


def test_an_encoded_word_elsewhere_is_a_hint() -> None:
    raw = b"Subject: =?koi8-r?Q?=F7?=\n\n" + "Да".encode("koi8-r")

    assert "Да" == parse_message(raw).text


JIS = {
    "circled and company": (b'\x1b$B-!-"-j\x1b(B', "①②㈱"),
    "Roman": (b"\x1b$B-5-6\x1b(B", "ⅠⅡ"),
    "half-width kana": (b"\x1b(I6E1\x1b(B", "ｶﾅｱ"),
    "shifted kana": (b"\x0e6E1\x0f", "ｶﾅｱ"),
    "ordinary": ("日本語".encode("iso2022_jp"), "日本語"),
    "Shift_JIS": ("会議は明日です".encode("cp932"), "会議は明日です"),
    "EUC-JP": ("会議は明日です".encode("euc_jp"), "会議は明日です"),
    "UTF-8": ("会議は明日です".encode(), "会議は明日です"),
    "EUC-JP of a sentence": ("見積をお送りします。".encode("euc_jp"), "見積をお送りします。"),
    "Shift_JIS of a sentence": ("見積をお送りします。".encode("cp932"), "見積をお送りします。"),
}


@pytest.mark.parametrize("kind", JIS)
def test_mail_declared_as_iso_2022_jp_is_read_as_it_is_sent(kind: str) -> None:
    data, text = JIS[kind]

    assert text == decode(data, "iso-2022-jp")[0]
    assert f"a {text} b" == decode(b"a " + data + b" b", "ISO-2022-JP")[0]


@pytest.mark.parametrize(
    "text", ["Grüße aus Köln", "Déjà vu à Orléans", "Привет из Осло", "请看附件"]
)
@pytest.mark.parametrize("damage", [b"\xa2\x8b", b"\xff", b"\xe2\x82"])
def test_declared_utf_8_with_a_few_wrong_bytes_stays_utf_8(text: str, damage: bytes) -> None:
    found, defect = decode(text.encode() + b" " + damage, "utf-8")

    assert found.startswith(text)
    assert "not valid utf-8" == defect


@pytest.mark.parametrize(("codec", "line"), LINES)
def test_text_in_another_charset_is_not_taken_for_damaged_utf_8(codec: str, line: str) -> None:
    assert decode_unknown(line.encode(codec)) == decode(line.encode(codec), "utf-8")[0]


@pytest.mark.parametrize("folded", [False, True])
def test_a_doubled_cr_is_one_line_break(folded: bool) -> None:
    more = "X-Long: one\n two\n" if folded else ""
    raw = f"{FROM}{more}\nHello\nBo\n".replace("\n", "\r\r\n").encode()

    parsed = parse_message(raw)

    assert ("Boats", "Hello\nBo") == (parsed.subject, parsed.text)
    assert len(raw) == parsed.size_bytes


@pytest.mark.parametrize("spelling", ["quoted/printable", "quoted_printable", "QuotedPrintable",
                                      "quoted-printable;", '"quoted printable"', "QP"])  # fmt: skip
def test_a_misspelt_quoted_printable_is_decoded(spelling: str) -> None:
    header = f"{FROM}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {spelling}"

    assert "Größe" == parse_message(f"{header}\n\nGr=C3=B6=C3=9Fe".encode()).text


@pytest.mark.parametrize("spelling", ["base-64", "Base_64", "base 64", "BASE64"])
def test_a_misspelt_base64_is_decoded(spelling: str) -> None:
    header = f"{FROM}Content-Type: text/plain\nContent-Transfer-Encoding: {spelling}"

    assert "Hello Bo" == parse_message(f"{header}\n\nSGVsbG8gQm8=".encode()).text


WORDS = {
    "utf-8 by letters": ("=?utf-8?Q?Gr=C3=B6=C3=9Fe_der_Boote?=", "Größe der Boote"),
    "latin-1 by letters": ("=?iso-8859-1?q?Gr=F6=DFe_der_Boote?=", "Größe der Boote"),
    "utf-8 in base64": ("=?UTF-8?B?R3LDtsOfZSBkZXIgQm9vdGU=?=", "Größe der Boote"),
}


@pytest.mark.parametrize("kind", WORDS)
def test_an_encoded_word_that_was_cut_off_is_decoded_as_far_as_it_goes(kind: str) -> None:
    word, text = WORDS[kind]
    payload = word.rindex("?", 0, len(word) - 2) + 1
    for end in range(payload + 6, len(word)):
        subject = parse_message(
            f"From: a@x.example\nSubject: Re: {word[:end]}\n\nHi".encode()
        ).subject

        assert "=?" not in subject
        assert subject.rstrip("\ufffd ").removeprefix("Re: ") in text


def test_text_that_only_looks_like_an_encoded_word_stays() -> None:
    for subject in ("Use =?utf-8?Q? for letters", "=?utf-8?Q?", "a =?x?= b"):
        assert subject == parse_message(f"Subject: {subject}\n\nHi".encode()).subject


MONTHS = {
    "de": "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
    "fr": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
    "es": "ene. feb. mar. abr. may. jun. jul. ago. sept. oct. nov. dic.",
    "it": "gen feb mar apr mag giu lug ago set ott nov dic",
    "nl": "jan. feb. mrt. apr. mei jun. jul. aug. sep. okt. nov. dec.",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października "
    "listopada grudnia",
    "pt": "jan. fev. mar. abr. mai. jun. jul. ago. set. out. nov. dez.",
    "sv": "januari februari mars april maj juni juli augusti september oktober november december",
    "no": "jan. feb. mars apr. mai juni juli aug. sep. okt. nov. des.",
    "fi": "tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta "
    "syyskuuta lokakuuta marraskuuta joulukuuta",
    "cs": "ledna února března dubna května června července srpna září října listopadu prosince",
    "hu": "jan. febr. márc. ápr. máj. jún. júl. aug. szept. okt. nov. dec.",
    "ro": "ian. feb. mar. apr. mai iun. iul. aug. sept. oct. noi. dec.",
    "tr": "Oca Şub Mar Nis May Haz Tem Ağu Eyl Eki Kas Ara",
    "ru": "янв фев мар апр мая июн июл авг сен окт ноя дек",
    "uk": "січ лют бер кві тра чер лип сер вер жов лис гру",
    "el": "Ιαν Φεβ Μαρ Απρ Μαΐ Ιουν Ιουλ Αυγ Σεπ Οκτ Νοε Δεκ",
}


@pytest.mark.parametrize("weekday", ["", "Xyz, ", "mar., "])
@pytest.mark.parametrize("language", MONTHS)
def test_months_of_other_languages_are_read(language: str, weekday: str) -> None:
    for number, month in enumerate(MONTHS[language].split(), 1):
        for day in ("5", "05."):
            found = parse_date(f"{weekday}{day} {month} 2024 15:12:13 +0100")

            assert datetime(2024, number, 5, 14, 12, 13, tzinfo=UTC) == found, month


@pytest.mark.parametrize("hour", range(24))
@pytest.mark.parametrize("mark", ["AM/PM", " am/ pm", " a.m./ p.m."])
@pytest.mark.parametrize("value", ["Tue, 5 Mar 2024 {}", "5 Mar 2024 {} +0000", "2024-03-05 {}"])
def test_hours_of_half_a_day_are_read(value: str, mark: str, hour: int) -> None:
    half = mark.split("/")[hour >= 12]
    time = f"{hour % 12 or 12}:12:13{half}"

    assert datetime(2024, 3, 5, hour, 12, 13, tzinfo=UTC) == parse_date(value.format(time))


@pytest.mark.parametrize(
    ("year", "meant"), [("124", 2024), ("99", 1999), ("24", 2024), ("0024", 2024), ("100", 2000)]
)
def test_years_with_fewer_digits_are_those_of_rfc_5322(year: str, meant: int) -> None:
    found = parse_date(f"Tue, 5 Mar {year} 15:12:13 +0000")

    assert found is not None
    assert meant == found.year


@pytest.mark.parametrize("charset", ["iso-8859-1 (Latin)", '"iso-8859-1" (Latin)', "utf-8 (x)"])
@pytest.mark.parametrize("kind", ["text/plain", "text/plain (words)", "TEXT/PLAIN(words)"])
def test_comments_in_a_content_type_are_ignored(kind: str, charset: str) -> None:
    codec = "utf-8" if "utf" in charset else "latin-1"
    header = f"{FROM}Content-Type: {kind}; charset={charset}\n\n"

    assert "Grüße" == parse_message(header.encode() + "Grüße".encode(codec)).text


@pytest.mark.parametrize("charset", ["utf-16", "utf-16le", "utf-16be", "utf-32"])
@pytest.mark.parametrize("text", ["Plain words stand here.", "Grüße aus Köln und Łódź"])
def test_utf_8_under_the_name_of_a_wider_encoding_is_read(charset: str, text: str) -> None:
    assert text == decode(text.encode(), charset)[0]
    assert text == decode(text.encode(charset), charset)[0].lstrip("\ufeff")


@pytest.mark.parametrize("noise", [bytes(range(128, 256, 3)), b"\xa4\xb7\xd0\x8f\x9d" * 30])
def test_ascii_words_among_binary_bytes_stay(noise: bytes) -> None:
    text = decode(b"See file\n\n=ybegin line=128 size=16\n" + noise + b"\n=yend\n\nBye")[0]

    assert text.startswith("See file\n")
    assert text.endswith("\nBye")


def test_enriched_text_keeps_doubled_brackets() -> None:
    mail = f"{FROM}Content-Type: text/enriched\n\n<bold>If a <<b and c<<</bold> then <<<nl>x"

    assert "If a <b and c< then <\nx" == parse_message(mail.encode()).text
