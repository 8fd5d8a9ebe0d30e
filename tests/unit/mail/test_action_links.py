"""The action link of a mail is found, and no harmful or unrelated one."""

from __future__ import annotations

import pytest

from postroom.mail.extraction import find_link
from postroom.mail.message import Link
from postroom.mail.parse import parse_message
from postroom.model.limits import Limits

ID = "8f3kd93kf93kd93k7q"

FOUND = [
    ("Confirm: https://a.com/verify?token=abcdefghijklmnop_", "verify?token=abcdefghijklmnop_"),
    ("Confirm: _https://a.com/verify?t=abc_", "?t=abc"),
    ("click (https://a.com/verify/abc_(x))", "/abc_(x)"),
    ("https://a.com/verify?t=[1]", "?t=[1]"),
    ("[Verify](https://a.com/verify?t=1)", "verify?t=1"),
    ("[Verify](https://x.com/v/1(2))", "/v/1(2)"),
    ("Verify [https://a.com/verify?t=1] now", "verify?t=1"),
    ("Go to <https://a.com/verify/abc> now", "/verify/abc"),
    ("Here's your link: HTTPS://A.COM/login?x=1!", "login?x=1"),
    ("Go https://help.example.com/verify?token=abcdef\n\nhttps://example.com/", "?token=abcdef"),
    ("https://a.com/privacy/verify?token=aaaa\n\nhttps://a.com/", "?token=aaaa"),
    ("https://a.com/help/reset-password\n\nConfirm https://b.com/c?x=1", "b.com/c?x=1"),
    ("Confirm https://b.com/c\n\nhttps://a.com/help/reset-your-password", "b.com/c"),
    ("Confirm https://b.com/c\n\nhttps://a.com/confirm/unsubscribe?token=aaaa", "b.com/c"),
    ("Reset it here: https://a.com/reset?t=abc.\nHelp: https://a.com/help", "/reset?t=abc"),
    (f"Confirm:\nhttps://a.com/c/x.\nUnsubscribe: https://a.com/unsubscribe/{ID}", "/c/x"),
    (f"Confirm your email address:\n\nhttps://app.box.com/c/{ID}\n\nhttps://a.com/about", ID),
    (f"Confirm your address:\nhttps://www.dropbox.com/l/{ID}\n\nhttps://a.com/forum", ID),
    (f"Confirm: https://max.com/c/{ID} Questions? https://netflix.com/contact", ID),
    ("To activate your account: https://x.com/a/Zk3Q\nOur blog: https://a.com/blog", "/a/Zk3Q"),
    (f"Please click https://a.com/x/{ID} to verify your address.", ID),
    (f"You can unsubscribe at any time. Confirm your subscription: https://a.com/s/{ID}", ID),
    (f"Confirm your email.\n\nPaste this link into your browser:\nhttps://a.com/x/{ID}", ID),
    (f"Open this link in your browser to sign in: https://a.com/x/{ID}", ID),
    (f"Unblock your account: verify it at https://a.com/x/{ID}", ID),
    (f"Deny: https://a.com/d?t=1{ID}\nApprove: https://a.com/d?t=2{ID}", f"?t=2{ID}"),
    (f"Accept: https://a.com/r?a=1&t={ID}\nDecline: https://a.com/r?a=2&t={ID}", f"a=1&t={ID}"),
    (f"Confirm your order: https://a.com/o/{ID}\nCancel your order: https://a.com/x/1", ID),
    (f"Pour activer votre compte, cliquez ici :\n\nhttps://a.fr/a/{ID}", ID),
    ("Accept or decline the invitation: https://a.com/invite/77", "/invite/77"),
    ("Confirm your subscription: https://z.list-manage.com/subscribe/confirm?u=1", "confirm?u=1"),
    (f"Bitte bestätigen Sie Ihre Adresse:\nhttps://a.de/b/{ID}\n\nAbmelden: https://a.de/x/1", ID),
    (f"Cliquez ici pour réinitialiser votre mot de passe : https://a.fr/r/{ID}", ID),
    (f"Confirma tu correo:\nhttps://a.es/c/{ID}\nDarse de baja: https://a.es/c/b{ID}", ID),
    (f"Conferma il tuo indirizzo: https://a.it/c/{ID}", ID),
    (f"Redefina sua senha: https://a.br/r/{ID}", ID),
    (f"Bevestig je e-mailadres: https://a.nl/c/{ID}\nAfmelden: https://a.nl/a/1", ID),
    (f"Potwierdź adres e-mail: https://a.pl/c/{ID}", ID),
    (f"Bekräfta din e-post: https://a.se/c/{ID}", ID),
    (f"E-postanızı doğrulayın: https://a.tr/c/{ID}", ID),
    (f"Подтвердите адрес: https://a.ru/c/{ID}\nОтписаться: https://a.ru/u/{ID}", ID),
    (f"请点击以下链接验证您的邮箱：\nhttps://a.cn/c/{ID}\n退订：https://a.cn/t/1", ID),
    (
        f"以下のURLで本登録してください。\nhttps://a.jp/c/{ID}\n\n配信停止: https://a.jp/s",
        ID,
    ),
    (f"아래 링크를 눌러 이메일을 인증하세요: https://a.kr/c/{ID}", ID),
    (f"Verify your email: https://a.com/l/{ID} If you didn't request this, ignore it.", ID),
    (f"Confirm your booking (you can cancel any time): https://a.com/c/{ID}", ID),
    (f"Approve or deny the sign-in request: https://a.com/auth/{ID}", ID),
    (f"Confirm your email or your account will be deactivated: https://a.com/c/{ID}", ID),
    (f"Verify it, otherwise your account is deleted.\n\nVerify: https://a.com/c/{ID}", ID),
    (f"Your account was deactivated.\n\nReactivate: https://a.com/c/{ID}", ID),
    (f"Verify your email: https://a.com/verify?t={ID}&disable_tracking=1", "disable_tracking=1"),
    (f"Nur noch einen Klick entfernt!\n\nBestätigen: https://a.de/c/{ID}", ID),
    (f"Sign in to Acme\n\nContinue: https://a.com/s/{ID}\n\nAcme https://a.com/", ID),
]

NONE = [
    "no link at all",
    "Weekly news.\n\nUnsubscribe: https://news.example/unsubscribe/u1",
    f"Confirm that you want to unsubscribe: https://a.com/confirm/{ID}",
    f"To stop receiving these emails, log in: https://a.com/login/{ID}",
    f"Click https://a.com/verify/{ID} to unsubscribe.",
    f"https://a.com/verify?action=unsub&token={ID}",
    f"https://a.com/verify?action=un%73ubscribe&token={ID}",
    "Hello\nhttps://news.example/logo.png",
    "Confirm your email! https://a.com/verify/logo.png?x=1",
    f"Your parcel is on its way. Track it: https://a.com/track/{ID}",
    f"Passwords are dead.\n\nRead more: https://a.com/p/{ID}",
    f"Confirm that you want to delete your account: https://a.com/d/{ID}",
    "A magical summer: https://acme.com/stories/summer",
    "see https://acme.com/privacy and https://acme.com/terms",
    "Read our story: https://acme.com/stories/summer",
    "Follow us: https://x.com/acme https://www.facebook.com/acme https://youtu.be/x",
    "Get started with our app: https://play.google.com/store/apps/details?id=a",
    "Best password managers: https://acme.com/blog/password-managers?utm_source=mail",
    f"If this wasn't you, let us know: https://a.com/verify/{ID}",
    f"Did not request this? Report it: https://a.com/report-abuse/confirm?t={ID}",
    f"Verify your account\n\nIf you didn't sign up, click here: https://a.com/x/{ID}",
    f"Cancel your account: https://a.com/cancel-account/confirm?t={ID}",
    f"View this email in your browser: https://a.com/login/{ID}",
    f"Manage your preferences: https://a.com/login?t={ID}",
    f"Newsletter abbestellen: https://a.de/bestaetigen/{ID}",
    f"Zum Abmelden bitte bestätigen: https://a.de/x/{ID}",
    f"Se désabonner : https://a.fr/connexion/{ID}",
    f"Para darse de baja, confirme aquí: https://a.es/c/{ID}",
    f"Per annullare l'iscrizione conferma: https://a.it/disiscrizione/{ID}",
    f"Para cancelar a inscrição, confirme: https://a.br/c/{ID}",
    f"Uitschrijven? Bevestig hier: https://a.nl/uitschrijven/{ID}",
    f"Отписаться от рассылки: https://a.ru/confirm/{ID}",
    f"取消订阅请确认: https://a.cn/c/{ID}",
    f"配信停止の確認はこちら: https://a.jp/c/{ID}",
    f"수신거부 확인: https://a.kr/c/{ID}",
    f"Please confirm: https://a.com/account/delete/confirm?token={ID}",
    f"Please confirm: https://a.com/confirm?action=delete&token={ID}",
    f"Confirm account deletion: https://a.com/c/{ID}",
    f"Confirm that you want to close your account: https://a.com/c/{ID}",
    f"Confirm removal of your recovery email: https://a.com/c/{ID}",
    f"Turn off two-factor authentication? Confirm: https://a.com/c/{ID}",
    f"You asked to cancel your subscription.\n\nConfirm here: https://a.com/c/{ID}",
    f"Your account will be deleted.\n\nConfirm here: https://a.com/c/{ID}",
    f"Bitte bestätigen Sie die Löschung Ihres Kontos: https://a.de/c/{ID}",
    f"Pour confirmer la suppression de votre compte : https://a.fr/c/{ID}",
    f"Confirma la eliminación de tu cuenta: https://a.es/c/{ID}",
    f"Подтвердите удаление аккаунта: https://a.ru/c/{ID}",
    f"确认注销账号: https://a.cn/c/{ID}",
    f"Sign in to vote.\n\nA: https://a.com/1/{ID}\n\nOr log in.\n\nB: https://a.com/2/{ID}",
    "Passwords are dead.\n\nA story: https://a.com/stories/the-summer-after-them",
]


@pytest.mark.parametrize(("text", "end"), FOUND)
def test_the_link_is_found_completely(text: str, end: str) -> None:
    found = find_link(text)

    assert found is not None
    assert found.endswith(end)


@pytest.mark.parametrize("text", NONE)
def test_no_other_link_is_taken_for_it(text: str) -> None:
    assert find_link(text) is None


def test_the_link_with_a_call_to_action_is_chosen() -> None:
    links = [
        Link("Logo", "https://example.com/"),
        Link("Confirm your address", "https://click.example.com/c/9f8a7b6c5d4e3f2a1b0c"),
        Link("Unsubscribe", "https://example.com/unsubscribe?token=9f8a7b6c5d4e3f2a1b0c"),
        Link("Help", "https://example.com/help"),
    ]

    assert "https://click.example.com/c/9f8a7b6c5d4e3f2a1b0c" == find_link("", links)


def test_a_harmful_link_is_never_chosen() -> None:
    url = f"https://a.com/confirm/{ID}"

    assert url == find_link("", [Link("Confirm", url)])
    assert find_link(f"Unsubscribe: {url}", [Link("Confirm", url)]) is None


FOOT = (
    '<a href="https://t.com/1">Help</a> <a href="https://t.com/2">Verify</a> '
    '<a href="https://t.com/3">Unsubscribe</a>'
)
PAGES = [
    ('To verify your email, <a href="https://t.com/1">click here</a>.', "https://t.com/1"),
    ('<a href="https://t.com/1">Click here</a> to verify your email.', "https://t.com/1"),
    ('<a href="https://t.com/1">Click here</a> to unsubscribe.', None),
    ('If this was not you, <a href="https://t.com/1">reset your password</a>.', None),
    ('<a href="https://t.com/1"><img src="https://t.com/logo.png" alt="Logo"></a>Verify it!', None),
    (
        FOOT,
        "https://t.com/2",
    ),
    (
        '<p>Enter the code there to verify.</p><p>Unsubscribe <a href="https://t.com/1">here</a></p>',
        None,
    ),
]
BUTTONS = ["Click here", "Continue →", "Yes, it's me", "Open Acme", "Weiter", "Haz clic aquí"]
ASKING = "<h1>Verify your email address</h1><p>Please click the button to verify it.</p>"
BELOW = '<p><a href="https://a.com/">Acme</a> <a href="https://a.com/u">Unsubscribe</a></p>'
BUTTON = f"https://mail.a.com/ls/click?upn={ID}"
LOGO = f'<a href="{BUTTON}1"><img src="logo.png" alt="Acme"></a>'
HARMFUL = [
    "<p>We received a request to permanently delete your account.</p>%s",
    "<h1>Confirm your unsubscription</h1>%s",
    "<p>You asked to unsubscribe from our news.</p><p>%s</p>",
    "<p>Are you sure you want to close your account?</p>%s",
    "<h1>Confirm</h1>%s to delete your account.",
    "<h1>Please confirm</h1>%s<p>This will permanently delete your account.</p>",
]
PAGES += [
    *((f'{ASKING}<p><a href="{BUTTON}">{button}</a></p>{BELOW}', BUTTON) for button in BUTTONS),
    (f'{ASKING}<a href="{BUTTON}">No</a> <a href="{BUTTON}1">Yes</a>', f"{BUTTON}1"),
    (f'{ASKING}<a href="{BUTTON}">Secure my account</a> <a href="{BUTTON}1">Yes</a>', None),
    (
        f'{LOGO}{ASKING}<a href="{BUTTON}">Continue</a><p>Bye</p><a href="{BUTTON}2">Acme</a>',
        BUTTON,
    ),
    (
        f'{ASKING}Or simply delete it.<p><a href="{BUTTON}">Verify email</a></p>',
        BUTTON,
    ),
    (f'<p>Hi</p><a href="{BUTTON}"><img src="b.png" alt="Verify email"></a>{BELOW}', BUTTON),
    *(
        (page % f'<a href="{BUTTON}">{button}</a>', None)
        for page in HARMFUL
        for button in ("Confirm", "Yes, confirm", '<img src="b.png" alt="Confirm">')
    ),
]


@pytest.mark.parametrize(("page", "url"), PAGES)
def test_an_html_link_is_recognised_by_its_text_or_sentence(page: str, url: str | None) -> None:
    head = "Subject: x\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    parsed = parse_message(f"{head}<html><body>{page}</body></html>".encode(), Limits())

    assert url == find_link(parsed.text, parsed.links)


def test_a_hostile_text_takes_no_time() -> None:
    many = [Link(f"Verify {n}", f"https://a.com/{n}") for n in range(1_000)]
    for text in ("https://" * 100_000, "https://a/" + "([" * 100_000, "verif. " * 100_000):
        assert find_link(text, many) is not None
    assert find_link("https://a/help" + "/verif" * 100_000) is None


REQUESTS = [
    "Activate your account", "Aktivieren Sie Ihr Konto", "Activez votre compte",
    "Validez votre adresse", "Activa tu cuenta", "Active su cuenta", "Attiva il tuo account",
    "Activeer je account", "Aktywuj swoje konto", "Ative sua conta", "Ative a sua conta",
    "Aktivera ditt konto", "Aktivér din konto", "Aktiver kontoen din", "Aktivoi tilisi",
    "Aktivujte svůj účet", "Aktiválja fiókját", "Erősítse meg e-mail címét",
    "Activați contul dumneavoastră", "Hesabınızı etkinleştirin", "Активируйте аккаунт",
    "Активуйте обліковий запис", "Ενεργοποιήστε τον λογαριασμό σας",
    "Επιβεβαιώστε τη διεύθυνσή σας", "Συνδεθείτε", "登録を完了してください", "激活您的帐户",
    "계정을 활성화하세요",
]  # fmt: skip
ENDINGS = [
    "登録を解除", "登録の解除はこちら", "Deaktiver kontoen", "Inaktivera kontot",
    "Deaktiválja fiókját", "Deactivate your account",
]  # fmt: skip


@pytest.mark.parametrize("form", ["{}:\n{}\n", "{}: {}", "{}\n<{}>\n"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_understood_in_any_language(request_: str, form: str) -> None:
    url = "https://a.com/k/abc"

    assert url == find_link(form.format(request_, url) + "\n\nhttps://a.com/news")


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ending_is_no_request_in_any_language(ending: str) -> None:
    assert find_link(f"{ending}: https://a.com/k/abc") is None


@pytest.mark.parametrize("words", ["A native app", "Creative news", "Your active plan"])
def test_words_that_contain_a_request_are_none(words: str) -> None:
    assert find_link(f"{words}: https://a.com/k/abc") is None
