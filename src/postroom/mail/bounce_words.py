"""The vocabulary of mail servers that refuse: patterns by reason, the most telling first."""

from __future__ import annotations

import re

_WHO = "(?:user|address|recipient|mailbox|account|destinataire|addressee|login|name)"
_NOT_THERE = (
    "(?:unknown|not found|n(?:o|')t exist|not known|not recogni[sz]ed|unavailable|isn't|is not a"
    "|n'existe|inconnu|nonexistent|non-existent|undeliverable|is invalid|not listed|not exist"
    "|couldn't be found|wasn't found|does ?not|invalid)"
)
_WRONG = "(?:unknown|no such|invalid|bad|nonexistent|undeliverable|illegal|incorrect|wrong)"
_WHAT = (
    "(?:user|address|recipient|mailbox|account|local|person|name|destination|rcpt|e-?mail|alias"
    "|contact|subscriber)"
)
_CLOSED = (
    "(?:disabled|suspend|inactive|deactivat|locked|not active|inactif|unavailable .ctr|closed"
    "|expired)"
)

_WORDS: dict[str, tuple[str, ...]] = {
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
        r"please (?:update|use) .{0,40}address", r"mailbox .{0,30}moved", r"replaced by",
        r"is no longer .{0,60}(?:use|forward)",
    ),
    "suspended": (
        rf"(?:account|mailbox|user|recipient|address|boite|domain)\b.{{0,60}}{_CLOSED}",
        r"(?:disabled|inactive|suspended|closed) (?:account|user|mailbox|recipient)",
        r"temporarily (?:disabled|locked)",
    ),
    "refused_sender": (r"my name was rejected", r"sender rejected", r"after mail from"),
    "host_unknown": (
        r"host (?:or domain name )?(?:is )?(?:unknown|not found|does not exist)",
        r"unknown host", r"no such (?:domain|host)", r"domain (?:name )?(?:is )?not found",
        r"domain (?:does not exist|doesn't exist|is not reachable|must resolve|unknown)",
        r"unrouteable (?:mail )?domain", r"host .{0,60} not found",
        r"name or service not known", r"couldn't find any host", r"unresolvable",
        r"bad destination (?:host|system)", r"recipient address rejected: unrouteable",
        r"no mail ?server(?:s)? for", r"couldn't find a mail exchanger",
        r"or domain may not exist", r"domain name not found", r"nxdomain", r"invalid domain",
        r"illegal host", r"all relevant mx records point to non-existent",
        r"unable to find .{0,30}domain", r"cannot find .{0,40}(?:host|domain)",
        r"no a, aaaa and mx",
    ),
    "not_accepting": (
        r"null ?mx", r"does not accept (?:any )?(?:e-?)?mail", r"no mx record",
        r"mail server .{0,60}does not accept", r"not accepting (?:mail|messages)",
    ),
    "rejected": (
        r"spam", r"blocked", r"black ?list", r"block ?list", r"\bdnsbl\b", r"reputation",
        r"\bpolic(?:y|ies)\b", r"denied", r"not (?:allowed|permitted|authori[sz]ed)", r"dmarc",
        r"\bspf\b", r"\bdkim\b", r"unauthenticated", r"authentication (?:required|failed)",
        r"relay", r"virus", r"content (?:rejected|filter)", r"too large", r"message size",
        r"too (?:big|many)", r"rate limit", r"reverse dns", r"\bptr\b",
        r"sender (?:address )?(?:rejected|verify)", r"refused", r"suspicious", r"phish",
        r"\bhelo\b", r"prohibited", r"your (?:ip|domain|server)\b", r"client host",
        r"transaction failed", r"domain of sender", r"sender domain", r"name server reply",
    ),
    "user_unknown": (
        rf"{_WHO}\b.{{0,40}}{_NOT_THERE}", rf"{_WRONG}[ -](?:\w{{1,12}}[ -])?{_WHAT}",
        r"unrouteable address", r"recipnotfound", r"no mailbox", r"not our customer",
        r"does(?:n't| not) have an? .{0,40}account", r"there is no one at this address",
        r"this user doesn't", r"not a valid (?:user|mailbox)",
        r"is not (?:a )?(?:known|valid|an active|listed)", r"no (?:one|account) by that name",
        r"can(?:'|no)t (?:find|open) .{0,30}(?:mailbox|user)", r"user not", r"no user",
        r"no longer (?:on server|available|valid|exists|works|with)", r"unknown_user",
        r"recipient address rejected\.? ?(?:\(in reply|$)", r"<.{0,80}> not found",
        r"account that you tried to reach does not exist", r"sorry, no mailbox",
        r"(?:couldn't|could not|wasn't) (?:be )?f(?:ind|ound)",
        r"invalid final delivery userid",
    ),
}  # fmt: skip

REASONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (reason, re.compile("|".join(words), re.IGNORECASE)) for reason, words in _WORDS.items()
)
UNKNOWN_USER = re.compile(
    r"user unknown|unknown user|no such user|recipient address rejected: access denied"
    r"|(?:unknown|invalid) (?:recipient|mailbox)|recipient .{0,30}not (?:found|recogni[sz]ed)",
    re.IGNORECASE,
)
SPAM = re.compile(r"spam|block ?list|black ?list|dnsbl", re.IGNORECASE)
EXPIRED = re.compile(
    r"expired|too long|time ?out|timed out|retry (?:time|timeout)|queue|delayed|deferred"
    r"|will keep trying|not been delivered|cannot send message for|giv(?:e|ing) up"
    r"|connection (?:refused|reset)|lost connection|unable to (?:connect|contact)|not responding",
    re.IGNORECASE,
)
AFTER_DATA = re.compile(r"end of data|final data|>>> data\s{1,9}<<< [45]", re.IGNORECASE)
