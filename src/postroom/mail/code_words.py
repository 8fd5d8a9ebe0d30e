"""Words that stand by one-time codes, and by numbers that are none, in the languages of mail."""

from __future__ import annotations

import re

NOUN = re.compile(
    r"\b(?:codes?|otp|one[- ]time|pass ?code|pin|token|(?-i:[a-z]{0,5}TAN)|einmal\w{0,20}"
    r"|\w{4,20}code|sicherheits\w{0,9}"
    r"|código|codigo|clave|codice|(?:\w{4,20})?k[oó]d\w{0,5}|codul|\w{0,20}koodi\w{0,4}|κωδικ\w{0,4}|parola"
    r"|wachtwoord)\b"
    r"|код|пароль|验证码|校验码|动态码|動態碼|驗證碼|認証|確認コード|ワンタイム|コード|인증|코드|رمز|קוד|कोड"
    r"|รหัส|\bmã\b",
    re.IGNORECASE,
)
"""What a code is called."""

VERB = re.compile(
    r"\b(?:verif\w{0,9}|2fa|mfa|authenti\w{0,9}|confirmation|bestätigung\w{0,9}|vérifi\w{0,9}"
    r"|weryfik\w{0,6}|potwierdz\w{0,5}|doğrula\w{0,4}|bekräft\w{0,5}|bekræft\w{0,5}|bekreft\w{0,5}"
    r"|vahvist\w{0,5})\b|подтвержд|підтвердж|认证|確認",
    re.IGNORECASE,
)
"""What a code is for. It says less: mail without a code speaks of it too."""

SURE = re.compile(
    r"\b(?:verif\w{0,9}|one[- ]time|otp|pass ?code|pin|2fa|mfa|two[- ]factor|authenti\w{0,9}"
    r"|(?:security|log ?in|sign[- ]?in|access|confirmation) code|to (?:log|sign) in|einmal\w{0,20}"
    r"|(?:bestätigungs|sicherheits|anmelde|zugangs|verifizierungs)code|vérifi\w{0,9}|doğrula\w{0,4}"
    r"|weryfik\w{0,6}|code de (?:sécurité|connexion)|código de (?:seguridad|acceso|segurança))\b"
    r"|подтвержд|验证|校验|驗證|認証|인증",
    re.IGNORECASE,
)
"""What is said of no discount."""

SAID = re.compile(
    rf"(?:{NOUN.pattern}|{VERB.pattern})[*_\"']{{0,3}}"
    r"(?:\s+(?:is|lautet|ist|est|es|è|é|är|er|on|jest|adalah|là)\b\s*[:=：]?"
    r"|\s*(?:[:=：]|是|は|为|為))[\s\"'*(“„«]*$",
    re.IGNORECASE,
)
"""The end of `your code is`, after which nothing but the code can come."""

TO_USE = re.compile(
    r"(?:\b(?:use|enter|type|input|gib|geben sie|saisissez|entrez|utilisez|introduce|introduzca|usa"
    r"|ingresa|inserisci|digite|insira|voer|ange|wpisz|girin)|введите|输入|輸入)\s*[\"'*“„«]*$",
    re.IGNORECASE,
)
TO_DO = re.compile(
    r"\W{0,3}\s*(?:to\s+(?:log|sign|verify|confirm|continue|complete|finish)|(?:ein|um |zur? )"
    r"|pour |para |per |om |för |aby |чтобы |для )",
    re.IGNORECASE,
)

OTHER_CODE = re.compile(
    r"\b(?:zip|post(?:al)?|area|country|error|status|exit|response|product|item|sort|swift|bank"
    r"|tax|vat"
    r"|wi-?fi|wlan|dress|qr|bar|source|short|tracking|booking|reservation|reference|referral|discount|promo"
    r"|promotion(?:al)?|coupon|voucher|gift(?:[- ]card)?|offer|order|customer|course|airport|sku"
    r"|colou?r)[- ]?codes?\b"
    r"|\b(?:gutschein|buchungs|reservierungs|kunden|artikel|produkt|rabatt|aktions|fehler|vorteils|kortings|actie|promo|rabat|bar|post|länder)"
    r"-?(?:code|kode?)[a-z]{0,2}\b"
    r"|\bcode (?:review|base|sample|freeze|quality|owner|golf|of conduct)s?\b|\btoken usage\b"
    r"|\bredeem (?:(?:your|this|the) )?code\b"
    r"|\bmeeting id\b[^\n]{0,40}\s{1,4}(?:pass ?code|password|pin)\b"
    r"|\bcode (?:promo\w{0,9}|postal|(?:de )?(?:réduction|remise)|avantage|erreur|cadeau)\b"
    r"|\bc[oó]digo (?:postal|promocional|de (?:descuento|desconto|error|erro|barras|reserva))\b"
    r"|\bcodice (?:sconto|promozionale|fiscale|postale|di sconto)\b"
    r"|\bkod\w{0,2} (?:rabatow\w{1,3}|pocztow\w{1,3}|promocyjn\w{1,3})\b"
    r"|\b(?:indirim|kupon|posta|hata) kodu\w{0,4}\b|промо-?код\w{0,3}|почтовый код|код товара"
    r"|(?:优惠|折扣|邮政|優惠)(?:编)?[码碼]|(?:クーポン|割引|エラー|商品)コード|(?:할인|쿠폰"
    r"|우편) ?(?:코드|번호)",
    re.IGNORECASE,
)
"""Codes that nobody waits for."""

OFFER = re.compile(
    r"%\s*(?:off|discount)|\b(?:off your|discounts?|coupons?|vouchers?|promo\w{0,9}|check-?out"
    r"|free (?:shipping|delivery)|sale|save\s+[\d$€£]\w{0,9}|gift ?cards?|referr\w{0,5}"
    r"|(?:next|first) (?:order|purchase)|rabat\w{0,9}|gutschein\w{0,9}|nachlass|sparen|descuento\w?"
    r"|cup[oó]n|remise|réduction|soldes|sconto|desconto|cupom|korting\w{0,5}|zniżk\w{0,3}"
    r"|indirim\w{0,5}|slev\w{0,3}|kedvezmény\w{0,4}|reducere)\b"
    r"|скидк|знижк|промокод|优惠|折扣|優惠|割引|クーポン|할인|쿠폰",
    re.IGNORECASE,
)
"""Somebody wants to sell something."""

_CURRENCY = (
    r"€|\$|£|¥|₹|₽|₺|₩|₴|(?:eur|usd|gbp|chf|jpy|cny|rmb|inr|rub|pln|sek|nok|dkk|czk|huf|(?-i:TRY)"
    r"|brl|mxn"
    r"|cad|aud|nzd|krw|uah|ils|sgd|hkd|zar|thb|idr|vnd|rs|kr|zł|kč|ft|tl|руб|грн)\b"
)
AMOUNT_BEFORE = re.compile(rf"(?:{_CURRENCY}|(?<!\w)(?:usd|rs)\.)\s?$", re.IGNORECASE)
AMOUNT_AFTER = re.compile(
    rf"\s?(?:{_CURRENCY}|元|円|원|%|(?:percent|prozent|dollars?|euros?|pounds?|rupees?|yen|points?"
    r"|punkte?|puntos|credits?|coins?|miles|[kmgt]b|bytes?|km|kg|seconds?|min(?:ute|uto|uut|uten)?n?s?"
    r"|hours?|stunden?|heures?|horas?|days?|tagen?|jours|días|users|people|items|customers|lines|copies|words|files|times|members|pages)\b)",
    re.IGNORECASE,
)

BOUGHT = re.compile(
    r"(?<!\bin )\border\b|\b(?:booking|reservation|bestellung|buchung|commande|pedido|ordine)\b",
    re.IGNORECASE,
)
"""What is confirmed with a number that is no code."""

PHONE = re.compile(
    r"(?:\+|\b(?:t[eé]l(?:efoni?n?o?|éphone)?|phone|call|fax|hotline|whatsapp"
    r"|mobile?)\b)[^\n]{0,20}$"
    r"|\b(?:sms|text|reply)\b[^\n]{0,16} to\s+$|电话|電話|전화|телефон",
    re.IGNORECASE,
)
OTHER_NUMBER = re.compile(
    r"(?:\b(?:order|invoice|ticket|case|account|ref(?:erence)?|customer|zip|p\.?o\.? box|suite|room"
    r"|amount|total|price|balance|ending(?: in| with)?|last (?:four|4)|flight|version"
    r"|rechnung\w{0,8}|bestell\w{0,8}|kunden\w{0,8}|auftrag\w{0,8}|betrag|summe|preis|endet auf"
    r"|konto"
    r"|commande|facture|montant|prix|pedido|factura|importe|precio|terminad[ao] en|ordine|fattura"
    r"|importo|bestelling|factuur|bedrag|zamówieni\w|faktur\w{0,3}|tilaus|sipariş)\b"
    r"|заказ|сч[её]т|сумм|订单|金额|註文|注文|合計|주문|[*x•·]{2,})[^\n\d]{0,20}$",
    re.IGNORECASE,
)
