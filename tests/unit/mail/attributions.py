"""Reply attributions as mail programs write them: by language, in both orders, wrapped anywhere."""

from __future__ import annotations

from collections.abc import Iterator

DATE_FIRST = {
    "en": "On {day} 4 October 2021 at 08:15, {who} wrote:",
    "de": "Am {day} 4. Oktober 2021 um 08:15 schrieb {who}:",
    "es": "El {day} 4 de octubre de 2021 a las 08:15, {who} escribió:",
    "fr": "Le {day} 4 oct. 2021 à 08:15, {who} a écrit :",
    "it": "Il giorno {day} 4 ott 2021 alle ore 08:15 {who} ha scritto:",
    "nl": "Op {day} 4 okt. 2021 om 08:15 schreef {who}:",
    "pl": "{day} 4 paź 2021 o 08:15 {who} napisał(a):",
    "pt": "Em {day} 4 de out. de 2021 às 08:15, {who} escreveu:",
    "sv": "Den {day} 4 okt. 2021 kl 08:15 skrev {who}:",
    "da": "Den {day} 4. okt. 2021 kl. 08.15 skrev {who}:",
    "no": "{day} 4. okt. 2021 kl. 08:15 skrev {who}:",
    "fi": "{day} 4. lokak. 2021 klo 8.15 {who} kirjoitti:",
    "cs": "{day} 4. 10. 2021 v 8:15 odesílatel {who} napsal:",
    "hu": "{who} ezt írta (időpont: 2021. okt. 4., {day} 8:15):",
    "ro": "Pe {day} 4 oct. 2021 la 08:15, {who} a scris:",
    "tr": "{who}, 4 Eki 2021 {day}, 08:15 tarihinde şunu yazdı:",
    "ru": "{day} 4 окт. 2021 г. в 08:15, {who} написал:",
    "uk": "{day} 4 жовт. 2021 р. о 08:15 {who} пише:",
    "el": "Στις {day} 4 Οκτ 2021 στις 08:15 {who} έγραψε:",
    "ja": "2021年10月4日(月) 8:15 {who}:",
    "zh": "{who} 于2021年10月4日周一 08:15写道：",
    "ko": "2021년 10월 4일 (월) 오전 8:15, {who}님이 작성:",
}
NAME_FIRST = {
    "en": "{who} wrote on {day} 4 October 2021 08:15:",
    "de": "{who} schrieb am {day} 4. Oktober 2021 um 08:15:",
    "es": "{who} escribió el {day} 4 de octubre de 2021 08:15:",
    "fr": "{who} a écrit le {day} 4 octobre 2021 à 08:15 :",
    "it": "{who} ha scritto il {day} 4 ottobre 2021 alle 08:15:",
    "nl": "{who} schreef op {day} 4 oktober 2021 om 08:15:",
    "pl": "{who} napisał(a) w dniu 4 października 2021 08:15:",
    "pt": "{who} escreveu em {day} 4 de outubro de 2021 às 08:15:",
    "sv": "{who} skrev den {day} 4 oktober 2021 kl 08:15:",
    "da": "{who} skrev den {day} 4. oktober 2021 kl. 08:15:",
    "no": "{who} skrev {day} 4. oktober 2021 08:15:",
    "fi": "{who} kirjoitti {day} 4. lokakuuta 2021 klo 8.15:",
    "cs": "{who} napsal {day} 4. října 2021 v 8:15:",
    "ro": "{who} a scris pe {day} 4 octombrie 2021 la 08:15:",
    "ru": "{who} написал {day} 4 октября 2021 г. в 08:15:",
    "uk": "{who} написав {day} 4 жовтня 2021 р. о 08:15:",
    "el": "{who} έγραψε στις {day} 4 Οκτωβρίου 2021 08:15:",
}
DAYS = {
    "en": "Mon,", "de": "Mo.,", "es": "lun,", "fr": "lun.", "it": "lun", "nl": "ma", "pl": "pon.,",
    "pt": "seg.,", "sv": "mån", "da": "man.", "no": "man.", "fi": "ma", "cs": "po", "hu": "H",
    "ro": "lun.,", "tr": "Pzt", "ru": "пн,", "uk": "пн,", "el": "Δευ", "ja": "", "zh": "", "ko": "",
}  # fmt: skip
PEOPLE = (
    "Mara Holm <m@fjord.example>",
    '"Solberg, Marianne" <ms@fjord.example>',
    "Jo <jo@x.example>",
)
SENTENCES = (
    "Please call Jonas\nto agree on 4 boats.",
    "See you on Sat 12",
    "It is done, so\nwe can go.",
    "Fine by me, until mar 3",
    "Vi ses tors 12 mars, om du vill",
    "We meet at 10:30",
    "Ich komme am Mo. um 10 Uhr.",
    "Thanks.\n\nAda",
)


def attributions() -> Iterator[tuple[str, str]]:
    """Each language and order, with each kind of name."""
    for order, forms in (("date first", DATE_FIRST), ("name first", NAME_FIRST)):
        for language, form in forms.items():
            for who in PEOPLE:
                yield f"{language} {order} {who[:5]}", form.format(day=DAYS[language], who=who)


def wrapped(attribution: str) -> Iterator[str]:
    """The attribution whole, and wrapped at each of its spaces."""
    yield attribution
    for at, sign in enumerate(attribution):
        if sign == " ":
            yield f"{attribution[:at]}\n{attribution[at + 1 :]}"
