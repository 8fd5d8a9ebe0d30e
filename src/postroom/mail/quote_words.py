"""The vocabulary of quoted mail: verbs, headings and header names of many languages."""

from __future__ import annotations

# "wrote", as single words.
VERBS = frozenset(
    ("wrote", "writes", "written", "sent", "said", "says", "schrieb", "geschrieben", "écrit",
     "ecrit", "escribió", "escribio", "escrit", "escreveu", "scritto", "scrisse", "schreef",
     "geschreven", "skrev", "skrifaði", "kirjoitti", "napisał", "napisał(a)", "napisała", "napsal",
     "napsal(a)", "napsala", "napísal", "napísal(a)", "írta", "scris", "написал", "написал(а)",
     "написала", "пишет", "писал", "написав", "пише", "писа", "напиша", "έγραψε", "yazdı", "yazmış",
     "viết", "menulis", "כתב", "כתבה", "كتب", "rašė", "kirjutas", "rakstīja", "napisao", "napisal",
     "noted", "quoting", "lähetti", "trimis", "scribsit", "shkroi")
)  # fmt: skip
# Verbs that ordinary sentences end with too.
WEAK_VERBS = frozenset(("said", "says", "sent", "noted", "writes", "written", "quoting"))
# Where words are not set apart by spaces.
VERBS_INSIDE = ("写道", "寫道", "님이 작성", "작성:", "書きました", "のメール", "编写")

ORIGINALS = (
    "original message", "original e-?mail", "original appointment", "ursprüngliche nachricht",
    "originalnachricht", r"urspr\. nachricht", "message d['’]origine", "message original",
    "message initial", "mensaje original", "mensagem original", "messaggio originale",
    "oorspronkelijk bericht", "oprindelig (?:besked|meddelelse|mail)", "opprinnelig melding",
    "ursprungligt meddelande", "originalmeddelande", "alkuperäinen viesti", "wiadomość oryginalna",
    "oryginalna wiadomość", "původní zpráva", "původní e-mail", "pôvodná správa",
    "eredeti üzenet", "mesaj original", "mesajul original", "исходное сообщение", "оригинал",
    "оригинальное сообщение", "вихідне повідомлення", "orijinal (?:mesaj|ileti)", "原始邮件",
    "原始郵件", "原邮件", "元のメッセージ", "원본 메시지", "원본 메일", "reply message",
    "quoted text",
    "αρχικό μήνυμα", "thư gốc", "missatge original", "izvorna poruka", "izvirno sporočilo",
    "pesan asli", "הודעה מקורית", "الرسالة الأصلية", "in reply to .{1,80}",
    "below this line is a copy", "this is a copy of the message", "enclosed is a copy",
    "(?:unsent|original) message follows", "message headers? follow",
    "reply above this line", "please reply above", "write your reply above",
)  # fmt: skip
FORWARDS = (
    "begin forwarded message", "forwarded (?:message|by|mail)", "weitergeleitete nachricht",
    "anfang der weitergeleiteten", "message transféré", "message réexpédié", "début du message",
    "mensaje reenviado", "inicio del mensaje", "messaggio inoltrato", "inizio messaggio",
    "doorgestuurd bericht", "begin doorgestuurd", "mensagem encaminhada",
    "videresendt (?:besked|melding|meddelelse)", "vidarebefordrat", "przekazana wiadomość",
    "пересланное сообщение", "пересылаемое сообщение", "переслане повідомлення", "转发邮件",
    "转发的邮件", "轉寄", "転送メッセージ", "전달된 메시지", "iletilmiş mesaj", "iletilen mesaj",
    "välitetty viesti", "přeposlaná zpráva", "továbbított üzenet", "mesaj redirecționat",
)  # fmt: skip

_FROM = (
    "from", "von", "de", "da", "van", "fra", "från", "frå", "от", "від", "od", "lähettäjä",
    "feladó", "kimden", "gönderen", "από", "expéditeur", "expediteur", "remitente", "remetente",
    "afsender", "mittente", "afzender", "发件人", "寄件者", "寄件人", "差出人", "送信者",
    "보낸 사람",
    "보낸사람", "od koho", "de la", "từ", "dari", "מאת", "من", "absender", "отправитель",
)  # fmt: skip
_DATE = (
    "date", "sent", "datum", "gesendet", "envoyé", "envoyé le", "fecha", "enviado", "enviado el",
    "enviado em", "data", "inviato", "verzonden", "dato", "sendt", "sent at", "skickat", "дата",
    "отправлено", "відправлено", "wysłano", "data wysłania", "odesláno", "odoslané", "lähetetty",
    "päivämäärä", "päiväys", "küldve", "elküldve", "tarih", "gönderildi", "gönderme tarihi",
    "发送时间", "日期", "寄件日期", "傳送時間", "日時", "送信日時", "보낸 날짜", "날짜", "trimis",
    "ημερομηνία", "στάλθηκε", "ngày", "đã gửi", "tanggal", "dikirim", "enviada em", "enviada",
    "sendt den", "dátum", "poslano", "תאריך", "נשלח", "التاريخ", "message du", "when",
)  # fmt: skip
_TO = (
    "to", "an", "à", "a", "para", "aan", "til", "till", "кому", "do", "komu", "vastaanottaja",
    "címzett", "kime", "alıcı", "προς", "收件人", "收件者", "宛先", "받는 사람", "받는사람",
    "către",
    "đến", "kepada", "אל", "إلى", "cc", "kopie", "copie", "copie à", "kopi", "cópia", "copia",
    "抄送",
    "副本", "копия", "kopia", "bcc", "dw", "másolat", "bilgi", "참조", "kopio", "destinataire",
    "destinatario", "reply-to", "antwort an", "répondre à", "ccn", "för", "empfänger", "получатель",
)  # fmt: skip
_SUBJECT = (
    "subject", "betreff", "objet", "sujet", "asunto", "oggetto", "onderwerp", "assunto", "emne",
    "ämne", "тема", "temat", "předmět", "predmet", "aihe", "tárgy", "konu", "θέμα", "主题", "主旨",
    "件名", "题目", "제목", "subiect", "chủ đề", "tiêu đề", "subjek", "perihal", "נושא", "الموضوع",
    "assumpte", "zadeva", "tema", "priority", "importance", "attachments", "anlagen",
    "organization",
)  # fmt: skip
HEADERS = {
    **dict.fromkeys(_SUBJECT, "subject"),
    **dict.fromkeys(_TO, "to"),
    **dict.fromkeys(_DATE, "date"),
    **dict.fromkeys(_FROM, "from"),
}
