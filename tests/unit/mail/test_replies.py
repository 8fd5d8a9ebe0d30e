from __future__ import annotations

import pytest

from postroom.mail.quoting import split_reply

QUOTE = "> Lunch at noon?\n"

ATTRIBUTIONS = (
    "On Sat, Oct 10, 2026 at 10:00 AM Ada Lovelace <ada@example.org> wrote:",
    "On 10/10/2026 10:00, Ada Lovelace wrote:",
    "On Oct 10, 2026, at 10:00, Ada Lovelace\n<ada@example.org> wrote:",
    "On Mon, Aug 26, 2019 at 4:37 PM The Long Named Company <\nada@example.org>\nwrote:",
    "Am 10.10.2026 um 10:00 schrieb Ada Lovelace <ada@example.org>:",
    "Ada Lovelace <ada@example.org> schrieb am Sa., 10. Okt. 2026, 10:00:",
    "Le sam. 10 oct. 2026 à 10:00, Ada <ada@example.org> a écrit :",
    "El sáb, 10 oct 2026 a las 10:00, Ada (<ada@example.org>) escribió:",
    "Il giorno sab 10 ott 2026 alle ore 10:00 Ada <ada@example.org> ha scritto:",
    "Em sáb., 10 de out. de 2026 às 10:00, Ada <ada@example.org> escreveu:",
    "Op za 10 okt. 2026 om 10:00 schreef Ada <ada@example.org>:",
    "Den lör 10 okt. 2026 kl 10:00 skrev Ada <ada@example.org>:",
    "lør. 10. okt. 2026 kl. 10:00 skrev Ada <ada@example.org>:",
    "la 10. lokak. 2026 klo 10.00 Ada (ada@example.org) kirjoitti:",
    "sob., 10 paź 2026 o 10:00 Ada <ada@example.org> napisał(a):",
    "so 10. 10. 2026 v 10:00 odesílatel Ada <ada@example.org> napsal:",
    "сб, 10 окт. 2026 г. в 10:00, Ada <ada@example.org>:",
    "10 октября 2026 г., 10:00 пользователь Ada <ada@example.org> написал:",
    "Ada <ada@example.org>, 10 Eki 2026 Cmt, 10:00 tarihinde şunu yazdı:",
    "Vào Th 7, 10 thg 10, 2026 vào lúc 10:00 Ada <ada@example.org> đã viết:",
    "2026年10月10日(土) 10:00 Ada <ada@example.org>:",
    "Ada <ada@example.org> 于2026年10月10日周六 10:00写道：",
    "2026년 10월 10일 (토) 오전 10:00, Ada <ada@example.org>님이 작성:",
    "בתאריך שבת, 10 באוק׳ 2026 ב-10:00 מאת Ada <ada@example.org> כתב:",
    "2026-10-10 10:00 GMT+02:00 Ada <ada@example.org>:",
    '10.10.2026, 10:00, "Ada" <ada@example.org>:',
)


@pytest.mark.parametrize("attribution", ATTRIBUTIONS)
def test_a_reply_above_quote_marks_is_separated(attribution: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n{attribution}\n\n{QUOTE}")

    assert "Yes, gladly." == reply.new_text
    assert "Lunch at noon?" in reply.quoted_text


@pytest.mark.parametrize("attribution", ATTRIBUTIONS)
def test_a_reply_above_unquoted_old_text_is_separated(attribution: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n{attribution}\n\nLunch at noon?\n")

    assert "Yes, gladly." == reply.new_text
    assert "Lunch at noon?" in reply.quoted_text


@pytest.mark.parametrize(
    "separator",
    [
        "-----Original Message-----",
        "-------- Original message --------",
        "-----Ursprüngliche Nachricht-----",
        "-------- Message d'origine --------",
        "-----Mensaje original-----",
        "-----Messaggio originale-----",
        "-----Oorspronkelijk bericht-----",
        "-------- Oprindelig besked --------",
        "-----原始邮件-----",
        "---- Ada Lovelace wrote ----",
        "________________________________\nFrom: Ada\nSent: Saturday\nTo: Bob\nSubject: Lunch",
        "From: Ada <ada@example.org>\nSent: Saturday, October 10\nTo: Bob\nSubject: Lunch",
        "*From:* Ada\n*Sent:* Saturday\n*To:* Bob\n*Subject:* Lunch",
        "Von: Ada\nGesendet: Samstag\nAn: Bob\nBetreff: Lunch",
        "De : Ada\nEnvoyé : samedi\nÀ : Bob\nObjet : Lunch",
        "Från: Ada\nSkickat: lördag\nTill: Bob\nÄmne: Lunch",
        "От: Ada\nОтправлено: суббота\nКому: Bob\nТема: Lunch",
        "发件人: Ada\n发送时间: 2026年\n收件人: Bob\n主题: Lunch",
    ],
)
def test_everything_below_a_heading_is_old(separator: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n{separator}\n\nLunch at noon?")

    assert "Yes, gladly." == reply.new_text
    assert "Lunch at noon?" in reply.quoted_text


def test_answers_between_quoted_lines_are_new() -> None:
    reply = split_reply("> When?\n\nAt noon.\n\n> Where?\n\nAt the bridge.\n")

    assert "At noon.\n\nAt the bridge." == reply.new_text
    assert "> When?\n> Where?" == reply.quoted_text


def test_a_reply_below_the_quotation_is_new() -> None:
    reply = split_reply(f"{ATTRIBUTIONS[0]}\n{QUOTE}\nYes, gladly.")

    assert "Yes, gladly." == reply.new_text


def test_the_rest_of_a_quoted_line_is_quoted() -> None:
    reply = split_reply(f"> {'word ' * 14}and\nmore of it\n> end\n\nNew.")

    assert "New." == reply.new_text


def test_a_forwarded_mail_stays() -> None:
    text = "FYI\n\n---------- Forwarded message ----------\nFrom: Ada\nDate: today\n\nThe offer."

    assert text == split_reply(text).new_text


def test_a_forward_without_new_text_stays() -> None:
    text = "-----Original Message-----\nFrom: Ada\nSent: today\nTo: Bob\n\nThe offer."

    assert text == split_reply(text).new_text


def test_an_escaped_from_line_is_no_quotation() -> None:
    text = ">From 6a82c548 Mon Sep 17 00:00:00 2001\nFrom: Ada\nDate: today\nSubject: x\n\nPatch"

    assert text == split_reply(text).new_text


def test_an_attribution_inside_a_line_is_cut_there() -> None:
    reply = split_reply("Fine. On Wed, Apr 4, 2012 at 3:59 PM, bob@example.com wrote:\n> Hi")

    assert "Fine." == reply.new_text


@pytest.mark.parametrize(
    "text",
    [
        "On Monday we met.\nIt was fine.",
        "He wrote: nothing.",
        "From: the heart\nI thank you",
        ">>> Buy now <<<",
        "Meeting at 10:30:\n- lunch\n- walk",
        "Date: next week\nPlace: the bridge",
        "To do: buy milk\nSubject: to change",
        "On 5 May 2026 the board said:\nwe agree.",
    ],
)
def test_ordinary_text_is_all_new(text: str) -> None:
    reply = split_reply(text)

    assert (text, "", "") == (reply.new_text, reply.quoted_text, reply.signature)


@pytest.mark.parametrize(
    "signature",
    [
        "-- \nAda Lovelace\nCountess",
        "--\nAda",
        "Sent from my iPhone",
        "Envoyé de mon iPhone",
        "Best regards,\nAda",
        "Thanks,\n\nAda Lovelace\nExample Ltd.",
        "Mit freundlichen Grüßen\nAda",
        "____________\nThe mailing list\nhttps://lists.example.org/listinfo",
        "Ada Lovelace\nada@example.org\n+44 20 7946 0958\nwww.example.org",
    ],
)
def test_a_signature_is_separated(signature: str) -> None:
    reply = split_reply(f"Lunch at noon?\n\n{signature}")

    assert ("Lunch at noon?", signature) == (reply.new_text, reply.signature)


@pytest.mark.parametrize(
    "text",
    [
        "Thanks for the flowers.",
        "Thanks!",
        "Thanks.\n\nShouldn't that be at noon?",
        "Fine.\n\nThanks!\n\nI have learned a lot today.",
        "Options:\n-- one\n-- two",
        "Please call:\n\nAda Lovelace\nada@example.org\n+44 20 7946 0958",
    ],
)
def test_text_that_only_looks_like_a_signature_is_text(text: str) -> None:
    assert text == split_reply(text).new_text
