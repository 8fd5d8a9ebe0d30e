"""Bounces of any server: reasons in many languages, anywhere in the notice."""

from __future__ import annotations

import pytest

from postroom.mail.message import Report
from postroom.mail.parse import parse_message

FAILED = "olaf@fjord.example"
RETURNED = (
    f"\nReturn-Path: <bo@isle.example>\nReceived: from a by b\nTo: {FAILED}\nSubject: lunch\n\nHi"
)
REASONS = {
    "user_unknown": (
        "Nobody of that name in our staff list", "None of the recipients is valid",
        "The recipient is not in our directory", "Benutzer unbekannt", "Destinataire inconnu",
        "El usuario no existe", "Utente sconosciuto", "Usuário não encontrado",
        "Gebruiker onbekend", "Użytkownik nie istnieje", "Пользователь не найден",
        "ユーザーが見つかりません", "用户不存在", "사용자를 찾을 수 없습니다",
        "Användaren finns inte", "Okänd mottagare", "Brugeren findes ikke", "Ukendt modtager",
        "Brukeren ble ikke funnet", "Mottakeren er ukjent", "Käyttäjää ei löydy",
        "Tuntematon vastaanottaja", "Uživatel neexistuje", "Neznámý příjemce",
        "Používateľ neexistuje", "A címzett ismeretlen", "A felhasználó nem található",
        "Utilizatorul nu există", "Destinatar necunoscut", "Kullanıcı bulunamadı",
        "Böyle bir kullanıcı yok", "Користувача не знайдено", "Невідомий одержувач",
        "Ο χρήστης δεν υπάρχει", "Άγνωστος παραλήπτης",
        "605 Not delivering to previously bounced address",
    ),
    "mailbox_full": (
        "The quota is used up", "Das Postfach ist voll", "Mailbox ist voll",
        "La boîte aux lettres est pleine", "Buzón lleno", "La casella è piena",
        "Caixa postal cheia", "Postvak is vol", "Skrzynka jest pełna", "Ящик переполнен",
        "メールボックスの容量超過", "邮箱已满", "메일함이 가득 찼습니다",
        "Postlådan är full", "Brevlådan är full", "Postkassen er fuld", "Innboksen er full",
        "Postilaatikko on täynnä", "Schránka je plná", "Kvóta byla překročena",
        "A postafiók megtelt", "Căsuța poștală este plină", "Posta kutusu dolu",
        "Kotası aşıldı", "Скринька переповнена", "Το γραμματοκιβώτιο είναι γεμάτο",
    ),
    "host_unknown": (
        "Host unknown", "The domain does not exist", "Die Domain existiert nicht",
        "Le domaine est inconnu", "El dominio no existe", "Dominio inesistente",
        "Домен не существует", "域名不存在",
        "Domänen finns inte", "Domænet blev ikke fundet", "Domenet finnes ikke",
        "Verkkotunnusta ei löydy", "Doména neexistuje", "A tartomány nem létezik",
        "Domeniul nu există", "Alan adı bulunamadı", "Домен не існує", "Ο τομέας δεν υπάρχει",
    ),
    "not_accepting": (
        "The domain has no mail service", "This domain never accepts mail", "Null MX",
        "The host does not receive any mail",
    ),
    "suspended": (
        "The account is disabled", "Konto gesperrt", "Compte désactivé", "Cuenta suspendida",
        "Аккаунт заблокирован", "账户已被冻结停用",
        "Kontot är inaktiverat", "Kontoen er spærret", "Kontoen er sperret",
        "Tili on suljettu", "Účet je zablokován", "A fiók letiltva", "Contul este suspendat",
        "Hesap devre dışı", "Скринька заблокована", "Ο λογαριασμός έχει απενεργοποιηθεί",
    ),
}  # fmt: skip
FORMS = (
    "{address}\n{words}", "<{address}>: {words}", "{words}\n\n{address}", "{words}.\n{address}",
    "* {address}\n  {words}", "To: {address}\n{words}",
)  # fmt: skip
HARD = ("user_unknown", "host_unknown", "not_accepting")
PAIRS = [(reason, words) for reason, all_words in REASONS.items() for words in all_words]


def notice(
    body: str,
    *,
    sender: str = "MAILER-DAEMON@mx.isle.example",
    subject: str = "Undelivered mail",
    more: str = "",
) -> Report | None:
    head = f"From: {sender}\nTo: bo@isle.example\nSubject: {subject}\n{more}"
    return parse_message(f"{head}Content-Type: text/plain; charset=utf-8\n\n{body}".encode()).report


def status_report(
    status: str, diagnostic: str, text: str = "It was not delivered.", charset: str = "utf-8"
) -> Report:
    raw = (
        "From: mailer-daemon@x\nContent-Type: multipart/report; boundary=b\n\n--b\n"
        f"Content-Type: text/plain; charset={charset}\n\n{text}\n--b\n"
        f"Content-Type: message/delivery-status\n\nReporting-MTA: dns; x\n\n"
        f"Final-Recipient: rfc822; {FAILED}\nAction: failed\nStatus: {status}\n"
        f"Diagnostic-Code: {diagnostic}\n--b--\n"
    )
    report = parse_message(raw.encode(charset)).report
    assert report is not None
    return report


@pytest.mark.parametrize("form", FORMS)
def test_a_reason_is_found_below_beside_and_above_the_address(form: str) -> None:
    for reason, words in PAIRS:
        report = notice(form.format(address=FAILED, words=words) + "\n" + RETURNED)

        assert report is not None, words
        assert [(FAILED, reason, reason in HARD)] == [
            (r.address, r.reason, r.hard) for r in report.recipients
        ], words


@pytest.mark.parametrize(("reason", "words"), PAIRS)
def test_a_diagnostic_in_any_language_tells_the_reason(reason: str, words: str) -> None:
    said = status_report("5.0.0", f"smtp; 550 {words}").recipients
    beside = status_report("5.0.0", "smtp; 550", f"{FAILED}\n{words}").recipients

    assert [reason, reason] == [said[0].reason, beside[0].reason]


@pytest.mark.parametrize(("charset", "words"), [
    ("iso-2022-jp", "ユーザーが見つかりません"), ("shift_jis", "ユーザーが見つかりません"),
    ("windows-1251", "Пользователь не найден"), ("gbk", "用户不存在"),
    ("iso-8859-1", "El usuario no existe"),
])  # fmt: skip
def test_a_raw_diagnostic_is_in_the_charset_of_the_notice(charset: str, words: str) -> None:
    report = status_report("5.0.0", f"smtp; 550 {words}", words, charset)

    assert "user_unknown" == report.recipients[0].reason


@pytest.mark.parametrize("mark", ['"{}":', "* {}", "To: {}", "<{}>:", "- {}", "Recipient: {}"])
def test_each_address_has_the_reason_of_its_section(mark: str) -> None:
    full, gone = mark.format("a@fjord.example"), mark.format("b@fjord.example")
    sections = f"{full}\n  552 5.2.2 the mailbox is full\n\n{gone}\n  550 5.1.1 unknown user\n"

    report = notice(f"These failed:\n\n{sections}{RETURNED}")

    assert report is not None
    assert [("a@fjord.example", False), ("b@fjord.example", True)] == [
        (r.address, r.hard) for r in report.recipients
    ]


@pytest.mark.parametrize(
    "body",
    [
        f"The message failed, I am sending it back.\n\n550 5.1.1 {FAILED}: unknown user",
        f"Ihre Nachricht konnte nicht zugestellt werden.\n\nRCPT TO:<{FAILED}>\nBenutzer unbekannt",
        f"Your mail could not be delivered: unknown user.\n{RETURNED}",
        f"No se pudo entregar el mensaje.\n\nDestinatario: {FAILED}\nEl usuario no existe",
        f"メールを配信できませんでした。\n\n550 5.1.1 {FAILED}",
    ],
)
@pytest.mark.parametrize(
    "sender", ["no-reply@isle.example", "Mail Robot <mail-robot@isle.example>"]
)
@pytest.mark.parametrize("subject", ["Re: lunch", "Повідомлення"])
def test_a_notice_is_recognised_by_its_body(sender: str, subject: str, body: str) -> None:
    report = notice(body, sender=sender, subject=subject)

    assert report is not None
    assert ("delivery", FAILED, True) == (
        report.kind,
        report.recipients[0].address,
        report.recipients[0].hard,
    )


@pytest.mark.parametrize(
    "body",
    [
        f"Hi Bo,\n\nwhat is this?\n\n> It could not be delivered.\n> 550 5.1.1 {FAILED}\n\nAda",
        f"What is this?\n\nOn 4 Oct 2021 at 08:15, x@y.example wrote:\n\n550 5.1.1 {FAILED} failed",
        "The parcel could not be delivered, room 550 was empty. Write to ada@isle.example.",
        "450 people came, and the talks failed to reach a result.",
    ],
)
def test_a_person_is_no_mail_server(body: str) -> None:
    assert notice(body, sender="Ada <ada@isle.example>", subject="Re: lunch") is None


@pytest.mark.parametrize(
    ("status", "diagnostic", "hard"),
    [
        ("5.1.2", "smtp; 452 4.2.2 quota used up", False),
        ("5.0.0", "smtp; 550 5.1.1 no such user", True),
        ("5.4.4", "smtp; host not found, gave up after 5 days: given up after 5 days", False),
        ("5.0.0", "smtp; 550 could not find a route to the gateway", False),
        ("5.0.0", "smtp; 550 could not find the mailbox of that person", True),
    ],
)
def test_only_certain_failures_are_hard_bounces(status: str, diagnostic: str, hard: bool) -> None:
    assert hard == status_report(status, diagnostic).hard


def test_headers_without_a_space_begin_the_returned_mail() -> None:
    report = notice(
        f"It was not delivered.\n\nReceived:from a by b\nMessage-ID:<1@x.y>\nTo: {FAILED}\n\nHi"
    )

    assert report is not None
    assert [FAILED] == [r.address for r in report.recipients]


def test_an_unknown_user_after_a_named_command_is_a_filter() -> None:
    report = notice(
        f"Your mail was not delivered.\ncommand: DATA\nresponse: 550 user unknown\n{FAILED}"
    )

    assert report is not None
    assert "filtered" == report.recipients[0].reason


@pytest.mark.parametrize("above", ["** Address not found **", "Delivery incomplete, sorry to say"])
@pytest.mark.parametrize(
    "verb", ["wasn't delivered", "was not delivered", "was refused on its way"]
)
def test_a_sentence_about_the_message_is_not_the_returned_message(above: str, verb: str) -> None:
    report = notice(f"{above}\n\nYour message {verb} to {FAILED}: 550 5.1.1 user unknown\n")

    assert report is not None
    assert [(FAILED, "5.1.1", True)] == [(r.address, r.status, r.hard) for r in report.recipients]


FAILURES = [
    "Meddelandet kunde inte levereras till mottagaren.", "Beskeden kunne ikke leveres.",
    "E-posten kunne ikke leveres til mottakeren.", "Viestiä ei voitu toimittaa.",
    "Vaši zprávu se nepodařilo doručit.", "Zprávu nelze příjemci doručit.",
    "Az üzenetet nem sikerült kézbesíteni.", "Mesajul nu a putut fi livrat.",
    "İletiniz teslim edilemedi.", "Повідомлення не було доставлено.",
    "Το μήνυμα δεν ήταν δυνατό να παραδοθεί.", "We could not pass on your mail.",
]  # fmt: skip


@pytest.mark.parametrize("sender", ["MAILER-DAEMON@x.example", "Mail Robot <no-reply@x.example>"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_recognised_in_any_language(failure: str, sender: str) -> None:
    report = notice(f"{failure}\n\n{FAILED}", sender=sender, subject="Mail")

    assert report is not None
    assert [FAILED] == [recipient.address for recipient in report.recipients]


@pytest.mark.parametrize("sender", ["no-reply@post.example", "Ida <ida@fjord.example>"])
@pytest.mark.parametrize("subject", ["Delivery failed: parcel 12345", "Delivery problem", "Bounce"])
@pytest.mark.parametrize(
    "body",
    [
        "We could not deliver your parcel 12345: nobody was at home.\nhttps://post.example/1",
        "The delivery to bo@shop.example failed twice, 'mailbox full'. What can I do?",
        "Your payment was rejected: error 554. Account kay@co.example.",
    ],
)
def test_a_parcel_or_a_question_about_a_delivery_is_no_bounce(
    body: str, subject: str, sender: str
) -> None:
    assert notice(body, sender=sender, subject=subject) is None


@pytest.mark.parametrize(
    ("words", "hard"),
    [
        ("DNS Error: DNS type 'mx' lookup responded with code NXDOMAIN", True),
        ("The email account that you tried to reach does not exist", True),
        ("Name service error: Host not found, try again for 5 days", False),
        ("The mailbox is full", False),
    ],
)
def test_a_general_code_leaves_the_decision_to_the_words(words: str, hard: bool) -> None:
    assert status_report("4.0.0", f"smtp; {words}").hard is hard
    assert status_report("4.4.3", f"smtp; {words}").hard is False
