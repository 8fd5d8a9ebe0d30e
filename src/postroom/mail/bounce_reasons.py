"""Why a mail was not delivered, from what the servers said."""

from __future__ import annotations

import re

from postroom.mail.message import ReportRecipient

# In this order: what a server says first about the mail, then about the address. Each pattern
# is plain alternation over a bounded text.
_REASONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (reason, re.compile("|".join(words), re.IGNORECASE))
    for reason, words in {
        "mailbox_full": (
            r"mailbox (?:is |size )?(?:full|over|exceed|has exceeded)", r"over ?-?quota",
            r"quota (?:is )?(?:exceed|full|limit|violation)", r"exceed(?:ed|s|ing)? .{0,40}quota",
            r"(?:inbox|mail ?folder|maildir|mail ?box|mail ?spool|account) is (?:full|over)",
            r"exceeded (?:the )?(?:local|storage|mailbox|space)", r"mailbox (?:would|will) exceed",
            r"disk ?quota", r"storage (?:limit|quota)", r"too many (?:mails|messages) in",
            r"not enough (?:storage |disk )?space", r"mailbox size limit", r"user is over",
            r"recipient's mailbox", r"insufficient .{0,20}(?:mailbox|disk)", r"storage is full",
        ),
        "moved": (
            r"address (?:has )?changed", r"(?:has|have) moved", r"new (?:e-?mail )?address",
            r"please (?:update|use) .{0,40}address", r"mailbox .{0,30}moved",
            r"replaced by", r"is no longer .{0,60}(?:use|forward)",
        ),
        "suspended": (
            r"(?:account|mailbox|user|recipient|address|boite|domain)\b.{0,60}(?:disabled|suspend"
            r"|inactive|deactivat|locked|not active|inactif|unavailable \(ctr|closed|expired)",
            r"(?:disabled|inactive|suspended|closed) (?:account|user|mailbox|recipient)",
            r"vdelivermail: account is locked", r"temporarily (?:disabled|locked)",
            r"mailbox (?:currently )?(?:unavailable or )?(?:is )?disabled",
        ),
        "refused_sender": (r"my name was rejected", r"sender rejected", r"after mail from"),
        "host_unknown": (
            r"host (?:or domain name )?(?:is )?(?:unknown|not found|does not exist)",
            r"unknown host", r"no such (?:domain|host)", r"domain (?:name )?(?:is )?not found",
            r"domain (?:does not exist|doesn't exist|is not reachable|must resolve|unknown)",
            r"unrouteable (?:mail )?domain", r"host .{0,60} not found", r"name or service not known",
            r"couldn't find any host", r"unresolvable", r"bad destination (?:host|system)",
            r"recipient address rejected: unrouteable", r"no mail ?server(?:s)? for",
            r"couldn't find a mail exchanger", r"or domain may not exist",
            r"domain name not found", r"nxdomain", r"invalid domain", r"illegal host",
            r"all relevant mx records point to non-existent", r"unable to find .{0,30}domain",
            r"cannot find .{0,40}(?:host|domain)", r"no a, aaaa and mx",
        ),
        "not_accepting": (
            r"null ?mx", r"does not accept (?:any )?(?:e-?)?mail", r"no mx record",
            r"mail server .{0,60}does not accept", r"smtp protocol diagnostic.{0,20}no mx",
            r"not accepting (?:mail|messages)", r"name server: \.: host not found", r"mx 0 \.",
        ),
        "rejected": (
            r"spam", r"blocked", r"black ?list", r"block ?list", r"\bdnsbl\b", r"reputation",
            r"\bpolic(?:y|ies)\b", r"denied", r"not (?:allowed|permitted|authori[sz]ed)", r"dmarc",
            r"\bspf\b", r"\bdkim\b", r"unauthenticated", r"authentication (?:required|failed)",
            r"relay", r"virus", r"content (?:rejected|filter)", r"too large", r"message size",
            r"too (?:big|many)", r"rate limit", r"reverse dns", r"\bptr\b", r"sender (?:address )?"
            r"(?:rejected|verify)", r"refused", r"suspicious", r"phish", r"\bhelo\b", r"prohibited",
            r"your (?:ip|domain|server)\b", r"client host", r"transaction failed",
            r"domain of sender", r"sender domain", r"name server reply",
        ),
        "user_unknown": (
            r"(?:user|address|recipient|mailbox|account|destinataire|addressee|login|name)\b.{0,40}"
            r"(?:unknown|not found|n(?:o|')t exist|not known|not recogni[sz]ed|unavailable"
            r"|isn't|is not a|n'existe|inconnu|nonexistent|non-existent|undeliverable|is invalid"
            r"|not listed|not exist|couldn't be found|wasn't found|does ?not|invalid)",
            r"(?:unknown|no such|invalid|bad|nonexistent|undeliverable|illegal|incorrect|wrong)"
            r"[ -](?:\w{1,12}[ -])?(?:user|address|recipient|mailbox|account|local|person|name|"
            r"destination|rcpt|e-?mail|alias|contact|subscriber)",
            r"unrouteable address", r"recipnotfound", r"no mailbox", r"not our customer",
            r"doesn't have an? .{0,40}account", r"does not have an? .{0,40}account",
            r"there is no one at this address", r"this user doesn't", r"not a valid (?:user|mailbox)",
            r"is not (?:a )?(?:known|valid|an active|listed)", r"no (?:one|account) by that name",
            r"can(?:'|no)t (?:find|open) .{0,30}(?:mailbox|user)", r"user not", r"no user",
            r"no longer (?:on server|available|valid|exists|works|with)", r"unknown_user",
            r"recipient address rejected\.? ?(?:\(in reply|$)", r"account that you tried to reach does not exist",
            r"(?:couldn't|could not|wasn't) (?:be )?f(?:ind|ound)", r"sorry, no mailbox",
            r"<.{0,80}> not found", r"invalid final delivery userid",
        ),
    }.items()
)  # fmt: skip
_BY_STATUS = {
    "1.0": "user_unknown", "1.1": "user_unknown", "1.3": "user_unknown", "1.2": "host_unknown",
    "4.4": "host_unknown", "1.6": "moved", "2.1": "suspended", "2.2": "mailbox_full",
    "1.10": "not_accepting", "3.2": "not_accepting", "4.7": "expired", "2.3": "rejected",
    "1.7": "rejected", "1.8": "rejected",
}  # fmt: skip
# Codes that say more than any words that come with them.
_TELLING = frozenset(("mailbox_full", "moved", "not_accepting", "rejected"))
_UNKNOWN = re.compile(
    r"user unknown|unknown user|no such user|recipient address rejected: access denied"
    r"|(?:unknown|invalid) (?:recipient|mailbox)|recipient .{0,30}not (?:found|recogni[sz]ed)",
    re.IGNORECASE,
)
_VAGUE = re.compile(r"$|[45]\.(?:0\.0|2\.|3\.0|7\.)")
_POLICY = re.compile(r"[45]\.(?:2\.[01]$|7\.)")
_ABOUT_MAIL = re.compile(r"[45]\.(?:[67]\.|3\.[014])")
_SPAM = re.compile(r"spam|block ?list|black ?list|dnsbl", re.IGNORECASE)
_AFTER_DATA = re.compile(r"end of data|final data|>>> data[\s\n]{1,9}<<< [45]", re.IGNORECASE)
_EXPIRED = re.compile(
    r"expired|too long|time ?out|timed out|retry (?:time|timeout)|queue|delayed|deferred"
    r"|will keep trying|not been delivered|cannot send message for|giv(?:e|ing) up"
    r"|connection (?:refused|reset)|lost connection|unable to (?:connect|contact)|not responding",
    re.IGNORECASE,
)
_HARD = frozenset(("user_unknown", "host_unknown", "moved", "not_accepting"))
_MOST = 4_000


def find_reason(diagnostic: str, status: str, transcript: str = "") -> str:
    """One word for why: what the words say, else what the code says, else `undefined`."""
    text = " ".join(diagnostic[:_MOST].split())
    by_status = _BY_STATUS.get(status[2:], "") if status else ""
    if by_status in _TELLING and status[0] == "5" or by_status == "mailbox_full":
        return by_status
    if _UNKNOWN.search(text) and not _SPAM.search(text):
        return "filtered" if _is_pretext(status, f"{text} {transcript}") else "user_unknown"
    for reason, words in _REASONS:
        if reason == "user_unknown" and _ABOUT_MAIL.match(status):
            return "rejected"
        if words.search(text):
            return (
                "filtered"
                if reason == "user_unknown" and _is_pretext(status, f"{text} {transcript}")
                else reason
            )
    if by_status:
        return by_status
    return "expired" if _EXPIRED.search(text) else "undefined"


def _is_pretext(status: str, transcript: str) -> bool:
    """True if "user unknown" is what a filter says.

    A server that took the address, then the mail, and then says so, filters; so does one whose
    own code speaks of policy and who does not answer the address.
    """
    transcript = transcript[: 4 * _MOST]
    if _VAGUE.match(status) and _AFTER_DATA.search(transcript):
        return True
    return bool(_POLICY.match(status)) and "rcpt" not in transcript.lower()


def verdict(
    address: str, action: str, status: str, diagnostic: str, reason: str
) -> ReportRecipient:
    """What became of the mail for one recipient.

    Hard is only what will never work: a dead address, said for good.
    """
    is_final = action == "failed" and not status.startswith("4")
    return ReportRecipient(
        address=address,
        action=action,
        status=status,
        diagnostic=" ".join(diagnostic[:_MOST].split())[:2_000],
        reason="delivered" if action in ("delivered", "relayed", "expanded") else reason,
        hard=is_final and reason in _HARD,
    )
