"""Separators, quote marks, sign-offs and HTML of many programs below the same reply."""

from __future__ import annotations

import pytest

from postroom.mail.data import load
from postroom.mail.html.html import html_to_text
from postroom.mail.parse import parse_message
from postroom.mail.quoting import split_reply
from postroom.mail.quoting.html_quotes import mark_quotes

LANGUAGES = {
    name: words for name, words in load("quotations")["languages"].items() if "above" in words
}
HEADINGS = ("Original Message", "Mensaje original", "Ursprüngliche Nachricht", "Message d'origine",
            "Исходное сообщение", "原始邮件", "Eredeti üzenet")  # fmt: skip
DRESSES = ("-----{}-----", "*----- {} -----*", "_____ {} _____", "## {} ##", "~~~ {} ~~~",
           "##- {} -##", "===== {} =====", "------- {}", "‐‐‐‐‐ {} ‐‐‐‐‐", "*{}*")  # fmt: skip
OLD = "\n\nOld words\n\nmore"


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("heading", HEADINGS)
def test_separators_are_recognised_in_any_style(heading: str, dress: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n{dress.format(heading)}{OLD}")

    assert "Yes, gladly." == reply.new_text


@pytest.mark.parametrize("dress", ["##- {} -##", "---- {} ----", "{}", "*{}*"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_line_to_reply_above_ends_the_reply_in_every_language(language: str, dress: str) -> None:
    words = LANGUAGES[language]
    for above in words["above"]:
        mark = f"{words['reply'][0]} {above} {words['line'][0]}"
        reply = split_reply(f"Yes, gladly.\n\n{dress.format(mark)}\n\nTicket 42 changed.")

        assert "Yes, gladly." == reply.new_text, mark


@pytest.mark.parametrize("rule", ["---", "-----", "***", "______"])
@pytest.mark.parametrize(
    "heading",
    ["*Earlier answers*", "**Previous replies**", "## Frühere Antworten", "_Réponses précédentes_"],
)  # fmt: skip
def test_a_rule_and_a_heading_end_a_forum_reply(rule: str, heading: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n{rule}\n{heading}\n\nAda said so.\n\n{rule}\nVisit topic")

    assert "Yes, gladly." == reply.new_text


@pytest.mark.parametrize("mark", ["| ", ": ", "MH> ", "Ada> ", "  MH> "])
def test_other_quote_marks_count_if_several_lines_have_them(mark: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n{mark}Lunch at noon?\n{mark}Bring Bo.\n\nAnd you?")

    assert "Yes, gladly.\n\nAnd you?" == reply.new_text


@pytest.mark.parametrize(
    "text",
    [
        "Prices:\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        "Try this:\n\ncat x\n| sort\n| uniq",
        "Try this:\n\ncat x \\\n| sort \\\n| uniq",
        "SQL> select 1;\nSQL> select 2;",
        "Fine :)\n: one",
    ],
)
def test_tables_pipes_and_prompts_are_no_quotes(text: str) -> None:
    assert text == split_reply(text).new_text


CLOSINGS = (
    "Kind regards,", "Mit freundlichen Grüßen", "Cordialement,", "Un saludo,", "Cordiali saluti",
    "Met vriendelijke groet,", "Pozdrawiam serdecznie", "Z poważaniem",
    "Com os melhores cumprimentos,",     "Med vänlig hälsning", "Venlig hilsen", "Vennlig hilsen",
    "Ystävällisin terveisin", "S pozdravem",
    "Üdvözlettel,", "Cu stimă,", "Saygılarımla,", "Saygilarimla", "С уважением,", "З повагою,",
    "Με εκτίμηση,", "よろしくお願いします。", "此致", "감사합니다.",
)  # fmt: skip
DEVICES = (
    "Sent from my iPhone", "From my Pixel 9", "Mara, on the phone", "Get BlueMail for Android",
    "Written on my tablet with FairEmail, sorry for the brevity.", "(Gesendet von meinem Handy)",
    "Envoyé depuis mon téléphone", "Enviado desde mi iPad", "Inviato da iPhone",
    "Verzonden vanaf mijn telefoon", "Wysłane z iPhone'a", "Skickat från min iPhone",
    "Sendt fra min iPhone", "Lähetetty iPhonesta", "Odesláno z iPhonu", "Отправлено с iPhone",
    "Надіслано з iPhone", "Στάλθηκε από το iPhone μου", "iPhoneから送信", "发自我的iPhone",
    "[Sent via Superhuman]", "Get Outlook for iOS<https://aka.ms/x>",
)  # fmt: skip


@pytest.mark.parametrize("device", ["", *DEVICES[:3]])
@pytest.mark.parametrize("closing", CLOSINGS)
def test_several_sign_offs_are_removed(closing: str, device: str) -> None:
    signature = "\n\n".join(filter(None, (f"{closing}\nMara", device)))

    reply = split_reply(f"Lunch at noon?\n\n{signature}")

    assert ("Lunch at noon?", signature) == (reply.new_text, reply.signature)


@pytest.mark.parametrize(
    "last", [*DEVICES, "/Mara", "// Mara", "- Mara", "____________\nMara Holm\nFjord AS"]
)
def test_a_last_line_of_a_device_or_a_name_is_the_signature(last: str) -> None:
    reply = split_reply(f"Lunch at noon?\n\n{last}")

    assert ("Lunch at noon?", last) == (reply.new_text, reply.signature)


def test_a_closing_above_a_delimiter_stays() -> None:
    reply = split_reply("Lunch?\n\nRegards,\nMara\n\n-- \nMara Holm")

    assert ("Lunch?\n\nRegards,\nMara", "-- \nMara Holm") == (reply.new_text, reply.signature)


@pytest.mark.parametrize(
    "text",
    [
        "Options:\n\n- Mara\n- Bo",
        "I sent the photos from my phone yesterday. Did you get them?",
        "The parcel was sent from the warehouse on Monday, and it should be with you by now.",
        "Best of luck with the move, see you there",
        "👍",
        "Fine.\n\n👍",
    ],
)
def test_words_that_only_look_like_a_sign_off_stay(text: str) -> None:
    assert text == split_reply(text).new_text


QUOTED = (
    '<div class="gmail_quote">Old words</div>',
    '<div class="gmail_extra"><br>x y<blockquote class="gmail_quote">Old words</blockquote></div>',
    '<div class="yahoo_quoted">Old words</div>',
    '<div class="protonmail_quote">Old words</div>',
    '<div class="zmail_extra">Old words</div>',
    '<div name="messageReplySection">Old words</div>',
    '<div id="appendonsend"></div><hr><div id="divRplyFwdMsg">x</div><div>Old words</div>',
    '<hr id="stopSpelling"><p>Old words</p>',
    "<div style='border:none;border-top:solid #E1E1E1 1pt'><b>Von:</b> Ada<br>x</div><p>Old words",
    "<blockquote>Old words</blockquote>",
    '<hr data-marker="__DIVIDER__"><div>Old words</div>',
)


@pytest.mark.parametrize("own", ["<p>Yes.</p>", "<div><div>Yes.</div></div>", "Yes.<br>"])
@pytest.mark.parametrize("quoted", QUOTED)
def test_html_structure_determines_quotations(quoted: str, own: str) -> None:
    reply = split_reply(html_to_text(mark_quotes(f"<html><body>{own}{quoted}</body></html>")).text)

    assert "Yes." == reply.new_text
    assert "Old words" in reply.quoted_text


@pytest.mark.parametrize("quoted", QUOTED)
def test_html_that_is_all_quoted_is_the_message(quoted: str) -> None:
    html = f"<html><body>{quoted}</body></html>"

    assert html_to_text(html).text == html_to_text(mark_quotes(html)).text


@pytest.mark.parametrize(
    "signature",
    ['class="gmail_signature"', 'class="moz-signature"', 'id="Signature"', 'id="x_Signature"'],
)
def test_html_structure_determines_the_signature(signature: str) -> None:
    raw = f"Content-Type: text/html\n\n<p>Yes.</p><div {signature}>Mara<br>Fjord AS</div>"

    parsed = parse_message(raw.encode())

    assert "Yes." == parsed.new_text
    assert "Mara\nFjord AS" in parsed.signature


def test_a_blockquote_amid_own_text_and_a_forward_stay() -> None:
    poem = "<p>I like:</p><blockquote>Roses</blockquote><p>You?</p>"
    forward = '<p>FYI</p><div class="gmail_quote">---------- Forwarded message ---------<br>x</div>'

    assert "Roses" in split_reply(html_to_text(mark_quotes(poem)).text).new_text
    assert "> " not in html_to_text(mark_quotes(forward)).text


@pytest.mark.parametrize("above", ["Try this:\n\n", "It fails for me.\n", "I typed\n\n"])
@pytest.mark.parametrize("typed", [">>> import os", ">>> 1 + 1\n2\n>>> exit()"])
@pytest.mark.parametrize("below", ["", "\n\nWhat do you get?"])
def test_shell_prompts_are_no_quotations(above: str, typed: str, below: str) -> None:
    text = above + typed + below

    assert text == split_reply(text).new_text


@pytest.mark.parametrize(
    "above", ["", "> And this?\n", "On 3 Jun 2021 at 08:15, Mara <m@fjord.example> wrote:\n"]
)
def test_deeply_quoted_lines_are_quoted(above: str) -> None:
    assert "Yes." == split_reply(f"{above}>>> Is it so?\n>>> Really?\n\nYes.").new_text
