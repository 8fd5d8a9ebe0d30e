"""The mails of the demo: who wrote what, how long ago."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.surfaces.cli.demo.pdf import make_pdf

Person = tuple[str, str]

SHOP = ("Lindgren Paper", "orders@lindgren-paper.example")
HARBOUR = ("Harbour Hosting", "billing@harbour-hosting.example")
WEEKLY = ("The Slow Web", "hello@slow-web.example")
LEDGER = ("Ledgerly", "no-reply@ledgerly.example")
MIRA = ("Mira Okafor", "mira@fernway.example")
TOMAS = ("Tomás Rivera", "tomas@fernway.example")
YUKI = ("佐藤 由紀", "yuki@kawara.example")
JANA = ("Jana Grünwald", "jana@nachbarschaft.example")


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A file that is made when the demo is."""

    filename: str
    content_type: str
    make: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A mail to the demo inbox; a later one of the same thread answers the one before."""

    thread: str
    hours_ago: float
    sender: Person
    subject: str
    text: str | None = None
    html: str | None = None
    cc: tuple[Person, ...] = ()
    enclosed: tuple[Enclosed, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the demo inbox answers to the newest mail of a thread."""

    thread: str
    hours_ago: float
    text: str
    reply_all: bool = False


def _order_pdf() -> bytes:
    return make_pdf(
        "Order 48213",
        [
            "Lindgren Paper, Kvarngatan 4, Uppsala",
            "",
            "2 x Notebook A5, dotted, 120 g            19.80",
            "1 x Fountain pen ink, 50 ml, blue-black    9.50",
            "Shipping                                   4.90",
            "",
            "Total EUR                                 34.20",
        ],
    )


def _invoice_pdf() -> bytes:
    return make_pdf(
        "Invoice HH-2026-0117",
        [
            "Harbour Hosting B.V., Rotterdam",
            "",
            "Virtual server, 2 cores, 4 GB    1 month    12.00",
            "Backups, 50 GB                   1 month     2.50",
            "VAT 21 %                                     3.05",
            "",
            "Due within 14 days, EUR                     17.55",
        ],
    )


_NEWSLETTER = """\
<!DOCTYPE html>
<html><body style="font-family: Georgia, serif; color: #222">
<h1>The Slow Web, issue 118</h1>
<p>Good morning! This week we read <b>three long pieces</b> so that you can choose one.</p>
<h2>1. The lighthouse that kept its own weather</h2>
<p>For forty years the keepers of Arholma wrote down the wind, every three hours. A student has
typed up all of it. <a href="https://slow-web.example/118/lighthouse">Read it</a> (20 minutes).</p>
<h2>2. How a small town got its library back</h2>
<p>It took a bake sale, two lawyers and a very patient mayor.
<a href="https://slow-web.example/118/library">Read it</a> (12 minutes).</p>
<h2>3. A field guide to quiet software</h2>
<p>Programs that wait until you ask. <a href="https://slow-web.example/118/quiet">Read it</a>.</p>
<p style="font-size: 12px">You get this because you asked for it.
<a href="https://slow-web.example/unsubscribe">Unsubscribe</a></p>
</body></html>
"""

_LIST_HEADERS = (
    ("List-Id", "The Slow Web <weekly.slow-web.example>"),
    ("List-Unsubscribe", "<https://slow-web.example/unsubscribe>"),
)

STEPS: tuple[Incoming | Reply, ...] = (
    Incoming(
        "order",
        150,
        SHOP,
        "Your order 48213 is confirmed",
        "Hello,\n\nthank you for your order 48213. Two notebooks and a bottle of ink are being "
        "packed; the confirmation is attached.\n\nKind regards\nLindgren Paper",
        enclosed=(Enclosed("order-48213.pdf", "application/pdf", _order_pdf),),
    ),
    Incoming(
        "weekly",
        122,
        WEEKLY,
        "The Slow Web, issue 118: a lighthouse and its weather",
        html=_NEWSLETTER,
        headers=_LIST_HEADERS,
    ),
    Incoming(
        "order",
        101,
        SHOP,
        "Re: Your order 48213 is confirmed",
        "Hello,\n\nyour parcel left Uppsala this morning and should arrive on Thursday. The "
        "tracking number is LP-7731-4402.\n\nKind regards\nLindgren Paper",
    ),
    Reply(
        "order",
        99.5,
        "Hello,\n\nthank you! If nobody is in on Thursday, please leave it with the bakery next "
        "door.\n\nDemo",
    ),
    Incoming(
        "order",
        97,
        SHOP,
        "Re: Your order 48213 is confirmed",
        "Hello,\n\nnoted: the driver will ask at the bakery.\n\nKind regards\nLindgren Paper\n\n"
        "> If nobody is in on Thursday, please leave it with the bakery next door.",
    ),
    Incoming(
        "invoice",
        80,
        HARBOUR,
        "Invoice HH-2026-0117",
        "Dear customer,\n\nplease find attached invoice HH-2026-0117 over EUR 17.55 for your "
        "server. It is due within 14 days.\n\nHarbour Hosting",
        enclosed=(Enclosed("invoice-HH-2026-0117.pdf", "application/pdf", _invoice_pdf),),
    ),
    Incoming(
        "meeting",
        54,
        MIRA,
        "Planning on Thursday?",
        "Hi both,\n\ncan we go through the spring plan on Thursday? I can do 10:00 or 14:30.\n\n"
        "Mira",
        cc=(TOMAS,),
    ),
    Incoming(
        "meeting",
        52,
        TOMAS,
        "Re: Planning on Thursday?",
        "14:30 is better for me, I am on the train in the morning.\n\nTomás\n\n"
        "On Tuesday, Mira Okafor wrote:\n> I can do 10:00 or 14:30.",
        cc=(MIRA,),
    ),
    Reply(
        "meeting",
        50.5,
        "14:30 works. I will bring the numbers of last year.\n\nDemo",
        reply_all=True,
    ),
    Incoming(
        "meeting",
        50,
        MIRA,
        "Re: Planning on Thursday?",
        "Perfect: Thursday, 14:30, room Birch. I have put a draft of the agenda below.\n\n"
        "1. What went well\n2. Budget\n3. Who does what until June\n\nMira",
        cc=(TOMAS,),
    ),
    Incoming(
        "kawara",
        30,
        YUKI,
        "瓦の見本について",
        "お世話になっております。瓦窯の佐藤です。\n\nご依頼の見本を三枚、本日発送いたしました。"
        "色は「いぶし銀」「黒」「赤」です。届きましたらご感想をお聞かせください。\n\n佐藤 由紀",
    ),
    Reply(
        "kawara",
        27,
        "佐藤様\n\nありがとうございます。届きましたらすぐにご連絡いたします。「いぶし銀」がとても"
        "楽しみです。\n\nDemo",
    ),
    Incoming(
        "kawara",
        5,
        YUKI,
        "Re: 瓦の見本について",
        "ご丁寧にありがとうございます。割れやすいので、開封の際はお気をつけください。\n\n佐藤 由紀",
    ),
    Incoming(
        "fest",
        22,
        JANA,
        "Straßenfest am Samstag: wer bringt was mit?",
        "Liebe Nachbarn,\n\nam Samstag ab 15 Uhr feiern wir auf der Königstraße. Wir brauchen noch "
        "zwei Grills, Bänke und jemanden, der die Lichterkette aufhängt. Käsekuchen habe ich schon "
        "gebacken.\n\nSchöne Grüße\nJana",
    ),
    Reply(
        "fest",
        20,
        "Liebe Jana,\n\ndie Lichterkette übernehme ich, und einen Grill bringe ich auch mit. "
        "Größer als letztes Jahr?\n\nViele Grüße\nDemo",
    ),
    Incoming(
        "fest",
        18.5,
        JANA,
        "Re: Straßenfest am Samstag: wer bringt was mit?",
        "Großartig, danke! Ja, diesmal sperren wir die ganze Straße.\n\nJana",
    ),
    Incoming(
        "code",
        1,
        LEDGER,
        "Your sign-in code",
        "Your code for Ledgerly is 482913.\n\nIt works for ten minutes. If you did not ask for it, "
        "you can ignore this mail.",
    ),
)
