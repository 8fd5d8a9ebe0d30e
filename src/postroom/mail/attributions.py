"""The words with which mail programs introduce a quotation, in many languages.

Every pattern is applied to a bounded piece of text and has no nested repetition, so that no
input can make it slow.
"""

from __future__ import annotations

import re

# "wrote" as the verb of an attribution line.
_VERBS = (
    "wrote", "writes", "sent", "said", "says", "schrieb", "geschrieben", "hat geschrieben",
    "a écrit", "a ecrit", "écrit", "escribió", "escribio", "ha escrit", "ha scritto", "scrisse",
    "scritto", "escreveu", "escreveu no dia", "schreef", "geschreven", "skrev", "skrifaði",
    "kirjoitti", "napisał", "napisał(a)", "napisała", "napsal", "napsal(a)", "napsala", "napísal",
    "napísal(a)", "írta", "ezt írta", "a scris", "написал", "написал(а)", "написала", "пишет",
    "писал", "написав", "пише", "писа", "έγραψε", "yazdı", "şunu yazdı", "yazmış", "đã viết",
    "menulis", "כתב", "כתבה", "كتب", "写道", "寫道", "於", "编写", "님이 작성",
    "님이 씀", "이(가) 작성", "작성", "のメール", "書きました", "wrote the following",
    "a trimis", "rašė", "kirjutas", "rakstīja", "napisao", "je napisao", "je napisal", "noted",
    "het volgende geschreven", "skrev följande", "quoting", "viết", "lähetti", "напиша",
)  # fmt: skip
_VERB = re.compile(
    "(?:^|[\\s,)>\"'”’:])(?:"
    + "|".join(sorted(map(re.escape, _VERBS), key=len, reverse=True))
    + ")"
    r"(?=$|[\s:：,.(<-])|写道|寫道|님이 작성|작성:|書きました|のメール",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\b\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b|\b\d{1,2}:\d{2}\b|\d{4}\s?[年년]|\b(?:19|20)\d\d\b"
    r"|\b\d{1,2}[.h]\d{2}\b|\d{1,2}-[A-Za-z]{3}\.?-\d{2,4}"
)
_ADDRESS = re.compile(r"[^\s@<>]@[^\s@<>]|<mailto:")
_STARTS_WITH_DATE = re.compile(
    r"\s{0,9}(?:[A-Za-z]{3},? )?(?:\d{4}[-/.年]\s?\d{1,2}"
    r"|\d{1,2}[-/. ](?:\d{1,2}|[A-Za-z]{3,9})[-/. ,])"
)
# How the first word of an attribution looks when a whole sentence is one.
OPENERS = (
    "On", "Le", "Am", "El", "Il", "Op", "W dniu", "Den", "På", "Em", "No dia", "Vào", "Dne", "Dňa",
    "Em seg", "Em ter", "On the", "At", "Le ", "Op ", "Pada", "Në", "Kl", "Ma", "Στις", "В", "Пн",
    "Вт", "Ср", "Чт", "Пт", "Сб", "Вс", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Dnia",
    "在", "於", "Il giorno", "El día", "Quoting", "Sent from", "Begin forwarded", "Vie", "Lun",
    "Mar", "Mié", "Mer", "Jeu", "Ven", "Sam", "Dim", "Dana", "Pe", "La", "בתאריך", "في",
)  # fmt: skip
_OPENER = re.compile(
    r"(?:^|(?<=[\s-]))(?:" + "|".join(re.escape(w.strip()) for w in OPENERS) + r")(?=[\s,]|[\d])"
)
_SEPARATOR = re.compile(
    r"\s{0,9}[-_*=]{2,60}\s{0,9}(?:original message|original e-?mail|original appointment"
    r"|ursprüngliche nachricht|originalnachricht|urspr\. nachricht|message d['’]origine"
    r"|message original|message initial|mensaje original|mensagem original|messaggio originale"
    r"|oorspronkelijk bericht|oprindelig (?:besked|meddelelse)|opprinnelig melding"
    r"|ursprungligt meddelande|originalmeddelande|alkuperäinen viesti|wiadomość oryginalna"
    r"|oryginalna wiadomość|původní zpráva|původní e-mail|pôvodná správa|eredeti üzenet"
    r"|mesaj original|исходное сообщение|пересылаемое сообщение|оригинал|orijinal (?:mesaj|ileti)"
    r"|原始邮件|原始郵件|原邮件|元のメッセージ|원본 메시지|원본 메일|reply message|quoted text"
    r"|αρχικό μήνυμα|thư gốc|missatge original|izvorna poruka|izvirno sporočilo"
    r"|message from .{1,80} at .{1,60}|in reply to .{1,80})",
    re.IGNORECASE,
)
_FORWARD = re.compile(
    r"\s{0,9}(?:[-_*=>]{2,60}\s{0,9})?(?:begin forwarded message|forwarded (?:message|by)"
    r"|weitergeleitete nachricht|anfang der weitergeleiteten|message transféré|message réexpédié"
    r"|début du message|mensaje reenviado|inicio del mensaje|messaggio inoltrato"
    r"|inizio messaggio|doorgestuurd bericht|begin doorgestuurd|mensagem encaminhada"
    r"|videresendt (?:besked|melding)|vidarebefordrat|przekazana wiadomość"
    r"|пересланное сообщение|пересылаемое сообщение|转发邮件|转发的邮件|轉寄|転送メッセージ"
    r"|전달된 메시지|iletilmiş mesaj|välitetty viesti|přeposlaná zpráva|továbbított üzenet)",
    re.IGNORECASE,
)
_WROTE_DASHES = re.compile(
    r"\s{0,9}-{2,60}\s{0,9}\S.{0,200}(?:wrote|schrieb|a écrit)\s?-{2,60}", re.IGNORECASE
)

FROM = frozenset(
    ("from", "von", "de", "da", "van", "fra", "från", "frå", "от", "від", "od", "lähettäjä",
     "feladó", "kimden", "gönderen", "από", "expéditeur", "remitente", "remetente", "afsender",
     "发件人", "寄件者", "寄件人", "差出人", "送信者", "보낸 사람", "보낸사람", "od koho", "din",
     "de la", "från", "từ", "dari", "מאת", "من", "de:", "expediteur", "mittente", "afzender")
)  # fmt: skip
_DATES = frozenset(
    ("date", "sent", "datum", "gesendet", "envoyé", "envoyé le", "fecha", "enviado", "enviado el",
     "enviado em", "data", "inviato", "verzonden", "dato", "sendt", "sent at", "skickat", "дата",
     "отправлено", "відправлено", "wysłano", "data wysłania", "odesláno", "odoslané", "lähetetty",
     "päivämäärä", "päiväys", "küldve", "elküldve", "tarih", "gönderildi", "gönderme tarihi",
     "发送时间", "日期", "寄件日期", "傳送時間", "日時", "送信日時", "보낸 날짜", "날짜", "trimis",
     "ημερομηνία", "στάλθηκε", "ngày", "đã gửi", "tanggal", "dikirim", "enviada em", "enviada",
     "sendt den", "dátum", "poslano", "תאריך", "נשלח", "التاريخ", "datum/uhrzeit", "when")
)  # fmt: skip
_TO = frozenset(
    ("to", "an", "à", "a", "para", "aan", "til", "till", "кому", "do", "komu", "vastaanottaja",
     "címzett", "kime", "alıcı", "προς", "收件人", "收件者", "宛先", "받는 사람", "받는사람",
     "către", "đến", "kepada", "אל", "إلى", "cc", "kopie", "copie", "kopi", "cópia", "copia",
     "抄送", "副本", "копия", "kopia", "bcc", "dw", "másolat", "bilgi", "참조", "kopio",
     "destinataire", "destinatario", "reply-to", "antwort an", "répondre à", "ccn", "q", "för", "k", "cc.", "dc")
)  # fmt: skip
_SUBJECT = frozenset(
    ("subject", "betreff", "objet", "asunto", "oggetto", "onderwerp", "assunto", "emne", "ämne",
     "тема", "temat", "předmět", "predmet", "aihe", "tárgy", "konu", "θέμα", "主题", "主旨", "件名",
     "题目", "제목", "subiect", "chủ đề", "tiêu đề", "subjek", "perihal", "נושא", "الموضوع", "re",
     "assumpte", "zadeva", "tema", "priority", "importance", "attachments", "anlagen",
     "organization")
)  # fmt: skip
_HEADER_WORDS = {
    **dict.fromkeys(_SUBJECT, "subject"),
    **dict.fromkeys(_TO, "to"),
    **dict.fromkeys(_DATES, "date"),
    **dict.fromkeys(FROM, "from"),
}
_LONGEST = 500


def header_word(line: str) -> str:
    """`from`, `date`, `to` or `subject` if the line looks like that header of a quoted mail."""
    colon = line.find(":", 0, 40)
    if colon < 0:
        colon = line.find("：", 0, 40)
    if colon < 1:
        return ""
    return _HEADER_WORDS.get(line[:colon].strip(" \t*_>|\u200e\xa0").lower(), "")


def is_separator(line: str) -> bool:
    """`-----Original Message-----` and its kin: from here on everything is old."""
    return bool(_SEPARATOR.match(line[:_LONGEST]) or _WROTE_DASHES.match(line[:_LONGEST]))


def is_forward(line: str) -> bool:
    """The line above a mail that somebody passes on."""
    return bool(_FORWARD.match(line[:_LONGEST]))


def attribution_start(text: str, *, quote_follows: bool) -> int:
    """Where in `text` an attribution begins that runs to its end; -1 if there is none.

    With a quotation right below less proof is needed.
    """
    if len(text) > _LONGEST:
        return -1
    stripped = text.rstrip(" \t\n-*_")
    ends_well = stripped.endswith((":", "：")) or _ends_with_verb(stripped)
    verb = _VERB.search(stripped)
    dated = _DATE.search(text)
    addressed = _ADDRESS.search(text)
    if verb and ends_well and (dated or addressed):
        return _opening(text, quote_follows=quote_follows)
    if dated and addressed and (stripped.endswith((":", "：")) or quote_follows):
        return 0 if _STARTS_WITH_DATE.match(text) or quote_follows else -1
    if quote_follows and ends_well and (verb or addressed):
        return 0
    return -1


def _ends_with_verb(stripped: str) -> bool:
    tail = stripped[-40:]
    return any(match.end() == len(tail) for match in _VERB.finditer(tail))


def _opening(text: str, *, quote_follows: bool) -> int:
    opener = _OPENER.search(text)
    if opener:
        return opener.start()
    return 0 if quote_follows or _STARTS_WITH_DATE.match(text) or _ADDRESS.search(text) else -1
