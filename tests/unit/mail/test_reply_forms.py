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


HEADER_NAMES = [
    ("Subject", "Date", "From", "To"), ("Betreff", "Datum", "Von", "An"),
    ("Objet", "Envoyé", "De", "À"), ("Asunto", "Fecha", "De", "Para"),
    ("Тема", "Дата", "От", "Кому"), ("件名", "日時", "差出人", "宛先"),
]  # fmt: skip


@pytest.mark.parametrize("heading", ["", "----- Mail d'avant -----", "_____ Staré _____", "-----"])
@pytest.mark.parametrize("names", HEADER_NAMES)
def test_headers_above_the_first_one_belong_to_the_quoted_mail(
    names: tuple[str, ...], heading: str
) -> None:
    subject, date, sender, to = names
    block = f"{subject}: Boats\n{date}: 2024-03-05 15:12\n{sender}: Ada <ada@x.example>\n{to}: Bo"
    reply = split_reply(f"Yes, gladly.\n\n{heading}\n{block}{OLD}")

    assert "Yes, gladly." == reply.new_text


def test_headers_above_an_attribution_belong_to_the_quoted_mail() -> None:
    above = "----------------\nTo: Bo (bo@x.example);\nSubject: Boats;\n"
    reply = split_reply(f'Yes.\n\n{above}05.03.2024, 15:12, "Ada" <ada@x.example>:\nBoats?')

    assert "Yes." == reply.new_text


@pytest.mark.parametrize(
    "block",
    [
        "From: Hamburg\nTo: Vienna\nDate: 12 May 2024\nSeats: 2",
        "Von: Hamburg\nNach: Wien\nDatum: 12.05.2024\nAn: Bord",
        "De : Lyon\nÀ : Nice\nDate : 12/05/2024 10:30",
        "Von: 08:00\nBis: 17:00\nAn: Werktagen\nBetreff: Zeiten",
    ],
)
def test_a_trip_or_a_form_is_no_quoted_mail(block: str) -> None:
    text = f"Please book this:\n\n{block}\n\nThank you for all of that!"

    assert text == split_reply(text).new_text


@pytest.mark.parametrize("who", ['"Ada Holm" <ada@x.example>', "Ada Holm", "Ådå <a@x.example>"])
@pytest.mark.parametrize("date", ["05.03.2024 15:12", "3/5/2024 3:12 PM", "2024-03-05 15:12"])
def test_a_heading_between_angle_brackets_ends_the_reply(who: str, date: str) -> None:
    reply = split_reply(f"Yes, gladly.\n\n>>> {who} {date} >>>\nOld words\n\nAda")

    assert "Yes, gladly." == reply.new_text


@pytest.mark.parametrize("mark", ["＞ ", "＞"])
def test_wide_quote_marks_count(mark: str) -> None:
    assert "对的。" == split_reply(f"对的。\n\n{mark}是这个吗？\n{mark}谢谢").new_text


@pytest.mark.parametrize("initials", ["RL", "R", "rl"])
def test_initials_are_quote_marks_below_an_attribution(initials: str) -> None:
    above = f'>>>>> "{initials}" == Rhea Lund <rhea@x.example> writes:'
    mark = initials.upper()
    reply = split_reply(f"{above}\n\n    {mark}> Is it needed?\n\nNo, remove it.")

    assert "No, remove it." == reply.new_text


POSTSCRIPTS = ["PS: Bring the keys.", "P.S. Bring the keys.", "PPS Bring the keys.",
               "(PS: Bring the keys.)", "PD: Trae las llaves.", "NB: bring the keys", "П.С. Ключи!",
               "追伸 鍵を。", "추신: 열쇠", "附言：带上钥匙", "ΥΓ: Τα κλειδιά."]  # fmt: skip


@pytest.mark.parametrize("postscript", POSTSCRIPTS)
@pytest.mark.parametrize("below", ["", "\n\nSent from my iPhone", "\n\n-- \nAda Holm\nFjord Ltd"])
def test_a_postscript_is_text(postscript: str, below: str) -> None:
    reply = split_reply(f"See you.\n\nBest,\nAda\n\n{postscript}{below}")

    assert f"See you.\n\nBest,\nAda\n\n{postscript}" == reply.new_text


DISCLAIMERS = [
    "This e-mail is confidential. If you are not the intended recipient, please delete it.",
    "Diese Nachricht ist vertraulich. Sollten Sie sie irrtümlich erhalten haben, löschen Sie sie.",
    "Ce message est confidentiel. Si vous l'avez reçu par erreur, merci de le détruire aussitôt.",
    "Este mensaje es confidencial. Si lo ha recibido por error, le rogamos que lo elimine.",
    "Questo messaggio è riservato. Se è pervenuto per errore, si prega di cancellarlo subito.",
    "Dit bericht is vertrouwelijk. Bent u niet de bedoelde ontvanger, verwijder het dan direct.",
    "Wiadomość jest poufna. Jeśli nie są Państwo jej adresatem, prosimy o jej usunięcie.",
    "Esta mensagem é confidencial. Se a recebeu por engano, por favor apague-a de imediato.",
    "Meddelandet är konfidentiellt. Om du inte är avsedd mottagare ber vi dig radera det.",
    "Meddelelsen er fortrolig. Hvis du ikke er rette modtager, beder vi dig om at slette den.",
    "Tämä viesti on luottamuksellinen. Jos et ole sen oikea vastaanottaja, poista viesti.",
    "Zpráva je důvěrná. Pokud nejste jejím adresátem, prosíme o její neprodlené smazání.",
    "Az üzenet bizalmas. Amennyiben nem Ön a címzettje, kérjük, haladéktalanul törölje.",
    "Mesajul este confidențial. Dacă nu sunteți destinatarul, vă rugăm să îl ștergeți imediat.",
    "Bu ileti gizlidir. İletinin alıcısı değilseniz lütfen onu hemen siliniz ve bildiriniz.",
    "Сообщение конфиденциально. Если вы не являетесь его адресатом, удалите его немедленно.",
    "Лист конфіденційний. Якщо ви не є його адресатом, будь ласка, негайно видаліть його.",
    "Το μήνυμα είναι εμπιστευτικό. Αν δεν είστε ο παραλήπτης, παρακαλούμε διαγράψτε το.",
    "このメールには機密情報が含まれています。誤って受信された場合は、削除してください。",
    "本邮件含有保密信息。如果您不是指定的收件人，请立即通知发件人并删除本邮件。",
    "이 메일에는 기밀 정보가 있습니다. 잘못 수신하신 경우 즉시 삭제해 주시기 바랍니다.",
]


@pytest.mark.parametrize("disclaimer", DISCLAIMERS)
def test_a_disclaimer_is_part_of_the_signature(disclaimer: str) -> None:
    below = f"Kind regards\n\nHelen Marsh\nAccounts | Marsh & Sons Ltd | Leeds\n\n{disclaimer}"
    reply = split_reply(f"Here is the invoice.\n\n{below}")

    assert ("Here is the invoice.", below) == (reply.new_text, reply.signature)


@pytest.mark.parametrize(
    "html",
    [
        "<div class='gmail_quote'>{attribution}{first}{a}{second}{b}</div>",
        "<div class='gmail_quote'>{attribution}{first}{a}{b}</div>",
        "<div class='gmail_extra'><div class='gmail_quote'>{attribution}{first}</div>{a}{b}</div>",
    ],
)
def test_answers_between_the_quotations_of_an_element_stay(html: str) -> None:
    parts = {
        "attribution": "<div>On Tue, Mar 5, 2024 at 3:12 PM Ada &lt;a@x.example&gt; wrote:</div>",
        "first": "<blockquote class='gmail_quote'>Which day?</blockquote>",
        "second": "<blockquote class='gmail_quote'>And who pays?</blockquote>",
        "a": "<div>Monday.</div>", "b": "<div>We do.</div>",
    }  # fmt: skip
    marked = mark_quotes(f"<div>Hi Ada,</div>{html.format(**parts)}")

    assert ["Hi Ada,", "Monday.", "We do."] == [
        line for line in split_reply(html_to_text(marked).text).new_text.split("\n") if line
    ]


@pytest.mark.parametrize(
    "said",
    [
        "On 5 March 2024 at 15:12 I wrote:", "Am 5. März 2024 um 15:12 schrieb ich:",
        "Le 5 mars 2024 à 15:12, j'ai écrit :", "Il 5 marzo 2024 alle 15:12 io ho scritto:",
        "Op 5 maart 2024 om 15:12 schreef ik:", "Den 5 mars 2024 kl 15:12 skrev jag:",
        "5 марта 2024 в 15:12 я написал:", "Em 5 de março de 2024 às 15:12 eu escreveu:",
    ],
)  # fmt: skip
def test_what_the_writer_says_to_have_written_stays(said: str) -> None:
    text = f"You asked for it.\n\n{said}\n\nWe accept the terms.\n\nPlease print that today!"

    assert text == split_reply(text).new_text


@pytest.mark.parametrize("name", ["Ben", "Ben I. Holm", "Vi Nguyen", "Yo Ito"])
def test_names_that_look_like_the_writer_are_names(name: str) -> None:
    reply = split_reply(f"Yes.\n\nOn 5 March 2024 at 15:12, {name} wrote:\n\nOld words")

    assert "Yes." == reply.new_text


APPS = [
    "Get Outlook for iOS", "Outlook für Android herunterladen", "Télécharger Outlook pour iOS",
    "Obtener Outlook para Android", "Ottieni BlueMail per Android", "Outlook voor iOS downloaden",
    "Pobierz Outlook dla Android", "Получите Outlook для iOS", "Android için Outlook’u edinin",
    "iOS 版 Outlook を入手", "获取 Outlook for iOS", "Hämta Outlook för iOS",
    "Sent from Mailspring (https://a.example), the best free email app for work",
]  # fmt: skip


@pytest.mark.parametrize("app", APPS)
def test_an_advertisement_of_the_program_is_no_text(app: str) -> None:
    assert "Yes, gladly." == split_reply(f"Yes, gladly.\n\n{app}<https://a.example>").new_text
