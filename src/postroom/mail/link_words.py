"""Words of links: what asks to be followed, and what must not be, in the languages of mail."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Words:
    """Beginnings of words, in lower case; and patterns for what takes more to tell."""

    listed: str
    pattern: str
    _plain: tuple[str, ...] = field(init=False)
    _regex: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain", tuple(self.listed.split("|")))
        object.__setattr__(self, "_regex", re.compile(self.pattern))

    def are_in(self, text: str) -> bool:
        """Whether one of them is; looked for one by one, which is fast for long texts."""
        lower = text.lower()
        return any(word in lower for word in self._plain) or bool(self._regex.search(lower))


ASKS = Words(
    "verif|confirm|activat|validat|magic link|magic-link|reset|passw|invit|accept|approv"
    "|get started|complete your"
    "|set up your|continue to|authoris|authoriz|sign in|sign-in|signin|log in|log-in|login"
    "|bestätig|aktivier|anmelden|einloggen|zurücksetz|einlad|annehmen|freischalt|abschließ"
    "|restablec|contraseña|iniciar sesión|inicia sesión|acceder|acepta|activar"
    "|réinitialis|mot de passe|connecter|connexion|vérifi|activer"
    "|conferm|reimposta|accedi|accetta|attiva|redefin|senha|entrar|convite|aceita|ativar"
    "|bevestig|wachtwoord|inloggen|aanmelden|uitnodig|activeer|potwierd|aktyw|zaloguj|zresetuj|hasł"
    "|zaprosz|bekräfta|logga in|återställ|lösenord|inbjud|bekræft|bekreft|log ind|logg inn"
    "|nulstil|vahvista|aktivoi|kirjaudu|potvr|ověř|přihlás|heslo|megerősít|bejelentkez|jelszó|parol"
    "|onayla|doğrula|etkinleştir|giriş yap|şifre|davet|επιβεβαί|ενεργοποί|σύνδεση"
    "|подтверд|активир|войти|вход|парол|приглаш|підтверд|активу|увійти"
    "|验证|确认|激活|登录|重置|密码|邀请|驗證|確認|啟用|登入|密碼|認証|有効化|ログイン|パスワード"
    "|再設定|招待"
    "|本登録|인증|확인|로그인|비밀번호|초대|활성화|تأكيد|تفعيل|تسجيل الدخول|אימות|xác minh|xác nhận"
    "|kích hoạt|đăng nhập|konfirmasi|aktifkan|ยืนยัน|पुष्टि|सत्याप",
    r"\bjoin\b|finish (?:sign|sett|regist)",
)
"""What a reader is asked to do."""

DOES = re.compile(
    r"verif|confirm(?!ed)|activat|validat|magic|sign[-_]?in(?![a-z])|log[-_]?in(?![a-z])|reset"
    r"|passw|invit"
    r"|accept(?!able)|(?:^|[/._-])o?auth(?:[/._-]|$)|bestaetig|aktivier|verifier|bevestig|conferma",
    re.IGNORECASE,
)
"""The same in the path of a link."""

ENDS = Words(
    "unsubscri|unsub/|unsub=|unsub_|unsub-|=unsub|/unsub|optout|opt-out|opt_out|opt out"
    "|no longer wish|no longer want|stop receiving|stop getting|stop these|remove me"
    "|abmeld|abbestell|austragen|désabonn|desabonn|désinscri|desinscri|darse de baja|dar de baja"
    "|darme de baja|descadastr|disiscri|afmeld|uitschrijv|avregistrer"
    "|avsluta pren|avsluta kont|avsluta ditt"
    "|avprenum|meld deg av|meld dig fra|frameld|wypis|rezygn|peruuta uutis|peruuta tilau|odhlás"
    "|leiratkoz|dezabon|abonelikten|listeden çık|διαγραφ|отпис|отказаться|відпис|退订|取消|配信停止"
    "|購読解除|登録解除|メール停止|수신거부|수신 거부|إلغاء|הסר|hủy|berhenti berlangganan"
    "|delet|cancel|deactivat|disabl|revoke|removal|erase|erasure|turn off"
    "|switch off"
    "|lösch|stornier|deaktivier|entfernen|entfernung|supprim|suppression|résili|désactiv|clôtur|annul"
    "|elimin|borrar|desactiv|disattiv|excluir|exclusão|apagar|encerr|desativ|verwijder|opzeg"
    "|usunąć|usuń|usunięci|radera|ta bort|slette|sletning|poista|smaz|odstran|zruš|törl|silme|iptal"
    "|удалит|удален|отмен|отключ|видалит|видален|скасу|删除|刪除|注销|註銷|削除|退会|解約|キャンセル"
    "|삭제|탈퇴|해지|취소|حذف|מחיק|xóa|hapus",
    r"\bunsub\b|\bterminat|\bclosure|\b(?:ge)?kündig|\bзакрыт\w{1,2} (?:акк|уч)"
    r"|\bclos(?:e|ing)\b[^.\n]{0,20}\baccount"
    r"|\bremov(?:e|ing) [^.\n]{0,30}\b(?:account|e-?mail|data|factor|device)"
    r"|\bkont\w{1,2}\b[^.\n]{0,20}\bschließ|\bfermer\b[^.\n]{0,10}\bcompte"
    r"|\b(?:cerrar|chiudere|chiusura)\b[^.\n]{0,15}\b(?:cuenta|account|conto)",
)
"""What ends something: a subscription, an account, a protection."""

NO_END = re.compile(
    r"\b(?:unsubscribe|cancel|opt out)\b[^.:\n]{0,30}\bany ?time"
    r"|\bany ?time[^.:\n]{0,10} (?:unsubscribe|cancel|opt out)\b"
    r"|\b(?:was|is|were|has been|have been) (?:deactivated|disabled|deleted|closed|cancell?ed)\b"
    r"|\b(?:or|otherwise,?) (?:your|it)\b[^.:\n]{0,60}"
    r"|\b(?:unless|if you (?:do not|don['’]t)) [^.:\n]{0,20}(?:verif|confirm|activat)[^.:\n]{0,80}"
    r"|\bfree cancellation\b|\bor (?:deny|declin\w{1,3}|reject|cancel)\b"
    r"|\bdelete this (?:e-?mail|message)\b"
    r"|\b(?:safely|simply|just) delete it\b|\bdisable_tracking=",
    re.IGNORECASE,
)
"""What only tells of an end that the link does not bring."""

FINAL = re.compile(
    r"\bpermanently (?:delet|clos|eras|remov)|\b(?:cannot|can['’]t) be undone"
    r"|\bendgültig (?:ge)?lösch"
    r"|\bsupprim\w{1,4} définitivement|\bdéfinitivement supprim|\beliminar[^.\n]{0,20} permanente"
    r"|\bdefinitivamente elimin|не может быть отменен",
    re.IGNORECASE,
)
"""Said in a mail after whose link there is no way back, wherever it stands."""

NEVER = Words(
    "preferences|preference cent|preference-cent|email settings|email-settings|e-mail settings"
    "|webversion|web version"
    "|web-version|webansicht|version en ligne|browser ansehen|browser anzeigen|browser lesen"
    "|not you?|report abuse|report-abuse|report this|report it|report spam|report fraud|disavow"
    "|nicht sie|nicht von ihnen|nicht angefordert|nicht beantragt|ablehnen|n'êtes pas|n’êtes pas"
    "|pas à l'origine|pas à l’origine|refuser|no has sido|no fuiste|no reconoces|no solicitaste"
    "|rechazar|non hai richiesto|non sei stato|non riconosci|rifiuta|não foi você|não solicitou"
    "|não reconhece|recusar|это не вы|это были не вы|не запрашива|отклон",
    r"manage[-_ ](?:your[-_ ])?(?:subscr|notif|pref)|declin|reject|\bdeny"
    r"|\bblock[-_ ]"
    r"|\bview[-_ ]?(?:it |this )?(?:e-?mail )?(?:in(?![a-z])|online)"
    r"|\b(?:view|read|voir|lire|ver|visualizza|bekijk|zobacz)\b[^.,\n]{0,20}"
    r"(?:browser|navigat|navegador|przegl)"
    r"|\b(?:was|is)(?:n['’]?t| not) (?:you|me)\b"
    r"|\b(?:did|do)(?:n['’]?t| not) (?:request|recogni[sz]e|sign|ask|make|create|expect)",
)
"""What refuses something, or shows the mail once more."""

NO = re.compile(r"\W*(?:no|not|nein|nicht|non|não|nee|nej|nei|nie|нет|ні)\b", re.IGNORECASE)
"""The other answer of a mail that asks whether it was you."""

STILL = re.compile(
    r"\.(?:png|gif|jpe?g|webp|svg|ico|bmp|css|js|woff2?|mp4|ics|vcf)$|/(?:pixel|beacon)\b",
    re.IGNORECASE,
)
"""Pictures and the like; some of them only tell that the mail was read."""

BESIDE = re.compile(
    r"\b(?:privacy|terms|settings|support|help|faqs?|contact|facebook|twitter|linkedin|instagram"
    r"|youtube"
    r"|tiktok|learn more|read more|about us|why did i|datenschutz|impressum|agb|hilfe|kontakt"
    r"|mehr erfahren|confidentialité|mentions légales|aide|privacidad|ayuda|contacto|termini"
    r"|assistenza"
    r"|ajuda|privacidade|hulp)\b|поддержк|конфиденциальност|隐私|帮助|プライバシー|ヘルプ"
    r"|お問い合わせ|개인정보|고객센터",
    re.IGNORECASE,
)
BESIDE_PLACE = re.compile(
    r"(?:^|[/._-])(?:privacy|terms|tos|legal|imprint|impressum|datenschutz|settings|support|help"
    r"|faqs?|contact|about|careers|jobs|press|authors?|community|forum|docs|blog|news"
    r"|articles?)(?=[/._?-]|$)"
    r"|^status\.|^(?:apps?|itunes)\.apple\.com|^play\.google\.com",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(
    r"(?:^|\.)(?:facebook|fb|twitter|x|linkedin|instagram|youtube|youtu|tiktok|pinterest|threads"
    r"|wa|t)\.(?:com|be|me|net|co)$",
    re.IGNORECASE,
)
"""Hosts to which many mails lead that are not theirs."""

CALLS = re.compile(
    r"\b(?:paste|following (?:link|url)|(?:link|url|button) below|link (?:not|doesn)|copy"
    r"|folgenden link|link unten|kopieren|lien (?:suivant|ci-dessous)|copiez|siguiente enlace|copia"
    r"|link seguente|link abaixo|seguinte link|volgende link|kopieer|poniższy link|skopiuj)\b"
    r"|следующ\w{2,3} ссылк|ссылке ниже|скопируйте|以下链接|以下連結|以下の(?:URL|リンク)"
    r"|下記の?URL|아래 링크",
    re.IGNORECASE,
)
"""What calls for a link without saying what it does."""

FELLOWS = re.compile(r"\b(?:utm_\w{1,20}|mc_\w{1,20}|ref|src|source|lang|locale)=[^&]*&?")
"""What is given to a link only to count who follows it."""
