"""A one-time code is found in mails that have one, and in no others."""

from __future__ import annotations

import pytest

from postroom.mail.extraction import find_code

FOUND = [
    ("Your code", "Your verification code is 482913.", "482913"),
    (
        "Sign in",
        "Use the code below to sign in:\n\n  774 120\n\nIt expires in 10 minutes.",
        "774120",
    ),
    ("G-559201 is your Google verification code", "Do not share it.", "559201"),
    ("Login", "Hi Ana,\n\n123-456\n\nis your one-time passcode. Copyright 2026.", "123456"),
    ("Code", "Your Notion login code: KX7P2M", "KX7P2M"),
    ("Confirm", "Enter AB1-2CD to confirm your email. Verification code", "AB1-2CD"),
    ("PIN", "Order 55512345 was shipped.\nYour pickup PIN: 4471", "4471"),
    ("x", "code:998877", "998877"),
    ("x", "Use code=998877", "998877"),
    ("x", "Your code: abc123", "abc123"),
    ("x", "Your code is **abC12f**.", "abC12f"),
    ("x", "Your login code is:\n\nx7k9-p2q4\n", "x7k9-p2q4"),
    ("x", "Your code is A1B2C3D4E5F6", "A1B2C3D4E5F6"),
    ("x", "Your code is 12-34-56", "123456"),
    ("Confirm", "Your verification code:\n\n  4 8 2 9 1 3\n", "482913"),
    ("Confirm", "Your verification code: 4 8 2 9 1 3.", "482913"),
    ("Confirm", "Your verification code is\n\n4 | 8 | 2 | 9 | 1 | 3\n\nIt expires.", "482913"),
    ("Confirm", "Your verification code:\n4\n8\n2\n9\n1\n3\nIt expires.", "482913"),
    ("Confirm", "Your verification code:\n\n4\n\n8\n\n2\n\n9\n", "4829"),
    ("x", "code 4 8 2 9 1 3 valid", "482913"),
    ("Slack", "Your confirmation code is below\n\nABC-DEF\n", "ABC-DEF"),
    ("Your Slack confirmation code: ABC-DEF", "Hello", "ABC-DEF"),
    ("x", "Your code is: 2024", "2024"),
    ("Login", "Use 12345 to log in.\nValid 10 minutes", "12345"),
    ("x", "Your one-time code is 551200. It is valid until 2026.", "551200"),
    ("Your Amazon OTP", "123456 is your OTP. Do not share it.", "123456"),
    ("x", "認証コードは ４８２９１３ です。", "482913"),
    ("x", "رمز التحقق: ٤٨٢٩١٣", "482913"),
    ("x", "Your code:\n\n4 | 8 | 2 | 9 | 1 | 3", "482913"),
    ("Ihre TAN", "Ihre mobileTAN für die Überweisung über 120,00 EUR lautet 482913.", "482913"),
    ("Steam", "Here is the Steam Guard code you need to log in:\n\nR5K2T\n\n", "R5K2T"),
    ("x", "Your X confirmation code is kx4m2p1q", "kx4m2p1q"),
    ("x", "Your code is 111222. Previous code 333444 is no longer valid.", "111222"),
    ("x", "Your code is https://x.com/v?code=123456 or type 654321", "654321"),
    ("x", "We got your request for a code. Please enter 482913 within 10 minutes.", "482913"),
    ("x", "Here is the code you asked for.\n482913 (valid for 10 minutes)", "482913"),
    ("x", "Your code arrived. It's 482913!", "482913"),
    ("Device", "Device: Chrome\nVerification code: 018472\n\nAcme, 94107 San Francisco", "018472"),
    ("x", "You paid 1500 EUR with your card. To confirm, enter the code 7719.", "7719"),
    ("Sale!", "Your login code is 482913.\n\nP.S. 20% off with code SAVE20 at checkout.", "482913"),
    ("x", "You can use the login verification code directly:\n\nh7k2-m9p4\n", "h7k2-m9p4"),
    ("Bank", "OTP for INR 15000.00 at Shop on card ending 4471 is 882913.", "882913"),
    ("Bank", "882913 is the OTP for your transaction of Rs. 4500 at Shop.", "882913"),
    ("Bestätigung", "Ihr Bestätigungscode lautet 9021.", "9021"),
    (
        "Bank",
        "Ihr Einmalpasswort lautet 482913, gültig 5 Minuten. Tel. 030 123456",
        "482913",
    ),
    ("Anmeldung", "Geben Sie 662 190 ein, um sich anzumelden.\nIhr Code läuft bald ab.", "662190"),
    ("Zugang", "Hier ist Ihr Zugangscode:\n\n5512\n\nGültig bis 31.12.2026", "5512"),
    ("Connexion", "Votre code de vérification est 482913.", "482913"),
    ("Connexion", "Saisissez ce code pour vous connecter :\n\n771 204\n", "771204"),
    ("Acceso", "Su código de verificación es: 330918", "330918"),
    ("Acceso", "Introduce este código para iniciar sesión: 4417", "4417"),
    ("Accesso", "Il tuo codice di verifica è 620184", "620184"),
    ("Acesso", "O seu código de segurança é 918273", "918273"),
    ("Inloggen", "Je verificatiecode is 554433", "554433"),
    ("Inloggning", "Din engångskod är 778812", "778812"),
    ("Logowanie", "Twój kod weryfikacyjny to 602117", "602117"),
    ("Giriş", "Doğrulama kodunuz: 331902", "331902"),
    ("DE", "Überweisung von 1500 EUR. Ihre TAN: 882913", "882913"),
    ("CZ", "Váš ověřovací kód je 482913", "482913"),
    ("FI", "Vahvistuskoodisi on 482913", "482913"),
    ("RO", "Codul tău de verificare este 482913", "482913"),
    ("GR", "Ο κωδικός σας είναι 482913", "482913"),
    ("VN", "Mã OTP của bạn là 482913", "482913"),
    ("AR", "رمز التحقق الخاص بك هو 482913", "482913"),
    ("JP", "ワンタイムパスワード：882913", "882913"),
    ("Вход", "Ваш код подтверждения: 4829", "4829"),
    ("Вход", "884210 — код для входа. Никому его не сообщайте.", "884210"),
    ("验证码", "您的验证码是 885217,请勿泄露。", "885217"),
    ("x", "认证 验证码445566，请勿泄露", "445566"),
    ("x", "您的验证码是482913，5分钟内有效", "482913"),
    ("x", "認証コード: 445566です", "445566"),
    ("x", "認証コード：482913", "482913"),
    ("x", "인증번호는445566입니다", "445566"),
    ("x", "인증번호는 482913 입니다", "482913"),
    ("x", "Your code:\n\n# 482913\n\nIt expires.", "482913"),
    ("Packstation", "Ihre mTAN für die Packstation lautet: 4821", "4821"),
    ("x", "Your verification code is: ACME-4821", "ACME-4821"),
    ("x", "In order to finish the verification:\n\n482913\n", "482913"),
]

NONE = [
    ("x", "Your code is one-time. It expires in: 10minutes."),
    ("x", "Security code, see https://example.com/verify?code=998877"),
    ("x", "Verification: rate us 1 2 3 4 5"),
    ("x", "Verification of your order\n\n1 | 2 | 3 | 4\n"),
    ("x", "Verification: rate us\n1\n2\n3\n4\n5"),
    ("x", "Verify version2 of the real-time API, see room:4711"),
    ("x", "Confirmation of your order:88213344"),
    ("x", "Security update: TLS-RSA and SHA256 are old, UTF-8 is not"),
    ("Hello", "Call +1 555 123 4567 in 2026, invoice 123456, $1,234.00."),
    ("Meeting", "See you on 2026-03-01 at 10:30 in room 4711."),
    ("amount", "You paid 1500 EUR with your PIN. Invoice 100200."),
    ("Receipt", "You confirmed a payment of USD 4500 with a one-time code."),
    ("Receipt", "The PIN was used to pay 1299 kr at the station"),
    ("Receipt", "Total: 1500\nAuthentication: 3-D Secure"),
    ("Receipt", "Your card ending in 4471 was verified."),
    ("promo", "Use code SAVE20 for 20% off. Order 2026 now!"),
    ("promo", "Use code SAVE20 today!"),
    ("promo", "Here is your promo code: SPRING26"),
    ("promo", "Your code is WELCOME10. Enjoy 10% off your first order!"),
    ("promo", "Your order is confirmed!\n\nUse this code at checkout:\n\nTHANKS15\n"),
    ("promo", "Save big: enter 2026 at checkout, your code for free shipping"),
    ("promo", "Your referral code: KX7P2M. Give it to a friend."),
    ("Gift", "Your gift card code: ABCD-1234"),
    ("Rabatt", "Mit dem Code SOMMER25 sparen Sie 25 % auf alles."),
    ("Gutschein", "Ihr Gutscheincode lautet: DANKE10"),
    ("Soldes", "Profitez de 30 % de réduction avec le code ETE2026"),
    ("Soldes", "Votre code promo : BIENVENUE10"),
    ("Oferta", "Usa el código VERANO20 y consigue un 20% de descuento"),
    ("Offerta", "Il tuo codice sconto: CIAO15"),
    ("Oferta", "Use o cupom BEMVINDO10 e ganhe 10% de desconto, código válido hoje"),
    ("Korting", "Gebruik kortingscode ZOMER20 voor 20% korting"),
    ("Rabat", "Twój kod rabatowy: LATO2026"),
    ("Скидка", "Ваш промокод: SALE2026"),
    ("Скидка", "Скидка 20% по коду LETO20"),
    ("优惠", "您的优惠码: SAVE2026"),
    ("クーポン", "クーポンコード: NATSU20"),
    ("Address", "Verify your email with the button below.\n\nAcme Inc, 1234 Market St, CA 94107"),
    ("Address", "Confirm your address.\n1234 Market Street, zip code 94107"),
    ("Adresse", "Bitte bestätigen Sie Ihre Adresse.\nMusterweg 5, 10115 Berlin"),
    ("Flug", "Ihr Buchungscode: X7K2PQ"),
    ("Dev", "Code review: 1234 lines changed in PR 5678"),
    ("Black Friday", "Your exclusive code: BFCM30 — 30% off everything. Ends tonight!"),
    ("2FA", "Two-factor authentication was turned on for account 12345678."),
    ("Error", "The job stopped with error code 40012."),
    ("Booking", "Booking code: X7K2PQ, 2 adults"),
    ("Order", "Your order number 12345678 has shipped. Call 555-1234."),
    ("SMS", "Two-factor codes are on. Reply STOP to 22395 to end them."),
    ("Limit", "Your token has 5000 credits left; 2500 MB were used."),
    ("Time", "Codes are valid for 1440 minutes."),
    ("News", "PIN pads: 4500 customers have switched in 2026"),
    ("[JIRA] (ACME-4821) Verify code path", "Key: ACME-4821\nComponent: token"),
    ("Re: token refresh", "In src/auth/code.py:\n> verify_code(482913)\n\nLooks good."),
    ("Sync", "Meeting ID: 844 1209 4412\nPasscode: 447120\n"),
    ("Sync", "Join by phone\n(US) +1 650-449-9222 PIN: 482 913 772#"),
    ("Order", "Thanks for your order\nConfirmation\n48210293"),
    ("Order", "Confirmation\n\n482913\n\nThanks for your order"),
    ("Bill", "Token usage 1200300"),
    ("Golf", "Code golf: 12345 bytes"),
    ("Check-in", "Wi-Fi code: 88213344."),
    ("Trial", "Redeem your code ABC123XYZ at acme.com/redeem"),
]


FORMS = {
    "482913": "482913",
    "4829": "4829",
    "48291377": "48291377",
    "482 913": "482913",
    "482-913": "482913",
    "48 29 13": "482913",
    "48-29-13": "482913",
    "4829 1377": "48291377",
    "4829-1377": "48291377",
    "482 913 772": "482913772",
    "4 8 2 9 1 3": "482913",
    "G-482913": "482913",
    "FB-48291": "48291",
    "ABC-123": "ABC-123",
    "AB1-2CD": "AB1-2CD",
    "KX7P2M": "KX7P2M",
}
"""A code as written in a mail, and as typed."""

SENTENCES = (
    "Your code is: {}",
    "Your verification code is {}.",
    "Your login code for Acme is {}",
    "Here is your security code:\n\n{}\n\nIt expires in 10 minutes.",
    "Ihr Code lautet: {}",
    "Ihr Bestätigungscode für Acme lautet {}.",
    "Votre code de vérification est {}.",
    "Votre code : {}",
    "Tu código es {}.",
    "Il tuo codice è {}",
    "O seu código de acesso é {}.",
    "Uw verificatiecode is {}.",
    "Din kod är {}",
    "Koden din er {}",
    "Váš ověřovací kód je {}",
    "Codul tău este {}",
    "Twój kod: {}",
    "Ваш код подтверждения: {}",
    "Ο κωδικός σας είναι {}",
    "您的验证码是 {}，请勿泄露。",
    "認証コード：{}",
    "인증번호는 {} 입니다",
)
PLACES = ("", "We are open 2024-2026. Invoice 100200, 1500 EUR, tel. 06 12 34 56 78.\n\n")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_found_in_every_sentence(form: str) -> None:
    texts = [place + sentence.format(form) for sentence in SENTENCES for place in PLACES]
    found = {text: find_code("Acme", text) for text in texts}

    assert dict.fromkeys(texts, FORMS[form]) == found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("subject", ["Your Acme code: {}", "Your verification code is {}"])
def test_every_form_is_found_in_a_subject(form: str, subject: str) -> None:
    assert FORMS[form] == find_code(subject.format(form), "Hello Ana,\n\nwelcome back.")


OTHERS = (
    "1999", "2026", "2024-2026", "2025 2026", "06 12 34 56 78", "030 123 456", "12 05 26",
    "1234 5678 9012 3456", "QA-48291", "4829 1377",
)  # fmt: skip
ABOUT_OTHERS = (
    "We have moved. Since {} we are in Berlin.",
    "Thanks for your order {}. It has shipped.",
    "Call us: {}",
    "Your account {} was closed.",
    "See ticket {} for the code path.",
    "The code of conduct was changed, see {}.",
    "Your code expires on {}",
    "Paid {} with a verified card",
    "Your total: {} EUR, confirmed.",
)


@pytest.mark.parametrize("sentence", ABOUT_OTHERS)
@pytest.mark.parametrize("number", OTHERS)
def test_years_phone_numbers_dates_and_order_numbers_are_no_codes(
    number: str, sentence: str
) -> None:
    text = sentence.format(number)

    assert (None, None) == (find_code("Acme", text), find_code(text, "Hello"))


@pytest.mark.parametrize(("subject", "text", "code"), FOUND)
def test_the_code_is_found(subject: str, text: str, code: str) -> None:
    assert code == find_code(subject, text)


@pytest.mark.parametrize(("subject", "text"), NONE)
def test_other_numbers_are_no_codes(subject: str, text: str) -> None:
    assert find_code(subject, text) is None


def test_a_hostile_text_takes_no_time() -> None:
    for text in ("1" * 10**6, "A-" * 500_000, "1 " * 500_000, "A1" * 500_000):
        assert find_code(text, text) is None
    assert find_code("", "code:" * 200_000 + "a1" * 500_000) is None
