"""Approval: decide about held mail, say what the policies would, and set the policy of an inbox."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from postroom.approval import is_as_strict, parse_pattern
from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import OneMessage, inbox_of, operation, require, require_scope
from postroom.calls.request import (
    ADDRESS_OR_DOMAIN,
    Accepts,
    OptionalId,
    Request,
    argument,
)
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, no_such
from postroom.mail.text.fold import as_key
from postroom.mail.verification import read_back
from postroom.model.inbox import Inbox
from postroom.model.key import AGENT_ID, OWNER, Scope
from postroom.model.mail.approval import (
    OPEN_POLICY,
    Approval,
    GateRequest,
    Hold,
    InboxPolicy,
    Policy,
    RecipientLists,
    SenderLists,
    Verdict,
)
from postroom.model.mail.message import Header, Message, hidden_chars
from postroom.model.mail.sending import EarlierMail, HeldMail, OutboxQuery, Sent
from postroom.model.page import Slice
from postroom.model.view import Everything, only
from postroom.operations.inboxes import OneInbox
from postroom.operations.outgoing.outbox import recipients_by_role, sent_of
from postroom.pipeline.ingest import check_size
from postroom.pipeline.routing import external_recipients, inboxes_for, route_all
from postroom.sending.outgoing_mail import distinct_addresses
from postroom.sending.replies import earlier_mail
from postroom.sending.submission import warn_of_disclosure

_SHA256 = Annotated[
    str,
    Field(min_length=64, max_length=64),
    argument("The sha256 of the mail that you have seen.", "9f86d081" * 8),
    Accepts({"pattern": "^[0-9a-f]{64}$"}),
]
_MAX_PATTERNS = 1_000
Patterns = list[Annotated[str, Field(min_length=2, max_length=254), Accepts(ADDRESS_OR_DOMAIN)]]


def _compared(patterns: list[str], field: str) -> tuple[str, ...]:
    """Patterns in the form in which they are compared, each once. Raises InvalidInput."""
    return tuple(dict.fromkeys(parse_pattern(pattern, field) for pattern in patterns))


class RecipientPatterns(Request):
    """Addresses and @domains; a domain does not include its subdomains."""

    allow: Annotated[
        Patterns,
        argument(
            "Recipients that do not count as new.", ["ana@example.com"], max_length=_MAX_PATTERNS
        ),
    ] = []
    deny: Annotated[
        Patterns, argument("Recipients to refuse.", ["@example.net"], max_length=_MAX_PATTERNS)
    ] = []

    def lists(self) -> RecipientLists:
        """The lists, with addresses as they are compared. Raises InvalidInput."""
        allow = _compared(self.allow, "recipients.allow")
        return RecipientLists(allow, _compared(self.deny, "recipients.deny"))


ApprovalMode = Annotated[
    Approval | None,
    argument("Which of its mail waits for approval.", "risky"),
]
Recipients = Annotated[
    RecipientPatterns | None,
    argument("Recipients to trust or to refuse.", {"allow": ["@example.com"], "deny": []}),
]


def is_limited(ctx: RequestContext) -> bool:
    """Whether the caller does not see everything."""
    views = (ctx.visible, ctx.caller.accounts, ctx.caller.namespaces)
    return not all(isinstance(view, Everything) for view in views)


def refuse_if_limited(ctx: RequestContext) -> None:
    """Refuse a caller who does not see everything: keys are of the whole installation."""
    if is_limited(ctx):
        raise Forbidden(
            "a key that is limited to inboxes, accounts or namespaces cannot manage keys; use "
            "another key"
        )


def refuse_looser(
    ctx: RequestContext, policy: Policy, what: str, before: Policy = OPEN_POLICY
) -> None:
    """Refuse a policy that would let out what the caller's own, or the one before, would hold.

    A caller whose mail needs no approval may relax any policy. Raises Forbidden.
    """
    own = ctx.caller.policy
    if own != OPEN_POLICY and not (is_as_strict(policy, own) and is_as_strict(policy, before)):
        raise Forbidden(
            f"{what}: your own mail needs approval ({ctx.caller.policy.approval}), so you cannot "
            "relax it; ask the owner"
        )


class GetHeldMail(OneMessage):
    """Read a mail that waits for approval: text, recipients, reasons, sha256."""


@operation(Scope.READ, other_scope=Scope.APPROVE)
async def get_held_mail(ctx: RequestContext, request: GetHeldMail) -> HeldMail:
    message = await _held(ctx, request.message_id)
    answers = None
    if message.in_reply_to is not None:
        answers = await ctx.store.message_by_internet_id(message.inbox_id, message.in_reply_to)
    content = await in_thread(read_back, await ctx.blobs.read(message.raw), "")
    roles = recipients_by_role(message)
    addresses = [recipient.address for recipient in message.recipients or ()]
    outside = external_recipients(ctx, addresses, await inboxes_for(ctx, addresses))
    facts = await ctx.store.held_mail_facts(message.id, message.inbox_id, outside)
    knows_keys = not ctx.caller.scopes.isdisjoint((Scope.APPROVE, Scope.ADMIN))
    return HeldMail(
        message_id=message.id,
        inbox_id=message.inbox_id,
        from_address=message.from_address,
        to_addresses=tuple(recipient.address for recipient in roles["to"]),
        cc_addresses=tuple(recipient.address for recipient in roles["cc"]),
        bcc_addresses=tuple(recipient.address for recipient in roles["bcc"]),
        recipients=message.recipients or (),
        subject=message.subject,
        text=message.text,
        attachments=message.attachments,
        status=message.status or "",
        hold=require(message.hold, no_such("held mail", message.id)),
        send_at=message.send_at,
        answers=answers.id if answers else None,
        answered_text=(answers.new_text or answers.text)[:_SHOWN_CHARS] if answers else None,
        body_html=content.html,
        hidden_chars=hidden_chars(message.security),
        reply_to=message.reply_to_addresses,
        headers=tuple(Header(*pair) for pair in content.headers),
        authors=tuple(facts.authors.values() if knows_keys else facts.authors),
        new_recipients=facts.new_recipients,
        replaces=facts.replaces or await _rejected_before(ctx, message),
    )


_SHOWN_CHARS = 4_000
_MAX_REJECTED = 50


async def _rejected_before(ctx: RequestContext, message: Message) -> EarlierMail | None:
    """The last rejected mail that this one was probably written instead of.

    It is in the same thread or has the same subject, and shares a recipient.
    """
    query = OutboxQuery(only(message.inbox_id), "rejected", Slice(limit=_MAX_REJECTED))
    recipients = {recipient.address for recipient in message.recipients or ()}
    for entry in (await ctx.store.outbox(query)).rows:
        is_related = entry.thread_id == message.thread_id or entry.subject == message.subject
        shared = recipients.intersection(recipient.address for recipient in entry.recipients)
        if is_related and shared and _was_decided_before(entry.hold, message.hold):
            rejected = await ctx.store.message(entry.message_id, ctx.visible)
            return earlier_mail(rejected) if rejected else None
    return None


def _was_decided_before(one: Hold | None, other: Hold | None) -> bool:
    """Whether a mail was decided before another was held."""
    decided_at = one.decided_at if one else None
    return decided_at is not None and other is not None and decided_at <= other.held_at


async def _held(ctx: RequestContext, message_id: str) -> Message:
    message = await ctx.store.message(message_id, ctx.visible)
    if message is None or message.hold is None:
        raise NotFound(f"no held mail {message_id}; list_outbox shows mail that waits")
    return message


class ApproveMessage(OneMessage):
    """Approve a held mail: exactly the mail with this sha256 is sent, once."""

    sha256: _SHA256


@operation(Scope.APPROVE)
async def approve_message(ctx: RequestContext, request: ApproveMessage) -> Sent:
    await ctx.store.approve_mail(
        request.message_id,
        ctx.visible,
        by=ctx.caller.key_id,
        sha256=request.sha256,
        now=ctx.clock(),
    )
    return sent_of(await _held(ctx, request.message_id))


class RejectMessage(OneMessage):
    """Reject a held mail: it is never sent. The note is shown to its sender."""

    sha256: _SHA256
    note: Annotated[
        str | None,
        argument("The reason, shown to its sender.", "Wrong amount.", max_length=500),
        Accepts({"pattern": r"^[^\u0000]*$"}),
    ] = None


@operation(Scope.APPROVE)
async def reject_message(ctx: RequestContext, request: RejectMessage) -> Sent:
    await ctx.store.reject_mail(
        request.message_id,
        ctx.visible,
        by=ctx.caller.key_id,
        sha256=request.sha256,
        now=ctx.clock(),
        note=request.note,
    )
    return sent_of(await _held(ctx, request.message_id))


class GetPolicy(OneInbox):
    """Read the policy of an inbox."""


@operation(Scope.READ)
async def get_policy(ctx: RequestContext, request: GetPolicy) -> InboxPolicy:
    inbox = await inbox_of(ctx, request.inbox_id)
    return await ctx.store.inbox_policy(inbox.id)


class SenderPatterns(Request):
    """Addresses and @domains; a domain does not include its subdomains."""

    allow: Annotated[
        Patterns,
        argument(
            "Accept mail only from these senders.", ["@example.com"], max_length=_MAX_PATTERNS
        ),
    ] = []
    block: Annotated[
        Patterns,
        argument("Refuse mail from these senders.", ["@spam.example"], max_length=_MAX_PATTERNS),
    ] = []
    action: Annotated[
        Literal["junk", "refuse"],
        argument("junk: move it to Junk; refuse: refuse it over SMTP.", "junk"),
    ] = "junk"

    def lists(self) -> SenderLists:
        """The lists, with addresses as they are compared. Raises InvalidInput."""
        allow = _compared(self.allow, "senders.allow")
        return SenderLists(allow, _compared(self.block, "senders.block"), self.action)


class SetPolicy(OneInbox):
    """Set the policy of an inbox: approval, recipients and accepted senders."""

    approval: ApprovalMode = None
    recipients: Recipients = None
    senders: Annotated[
        SenderPatterns | None,
        argument("Which senders it accepts.", {"block": ["@spam.example"], "action": "junk"}),
    ] = None


@operation(Scope.ADMIN)
async def set_policy(ctx: RequestContext, request: SetPolicy) -> InboxPolicy:
    inbox = await inbox_of(ctx, request.inbox_id)
    if request.senders is not None and inbox.account_id is not None:
        raise Conflict(
            f"senders: the mail of {inbox.address} arrives at its provider; block senders there, "
            "or move their mail with a rule"
        )
    before = await ctx.store.inbox_policy(inbox.id)
    policy = InboxPolicy(
        request.approval or before.approval,
        before.recipients if request.recipients is None else request.recipients.lists(),
        before.senders if request.senders is None else request.senders.lists(),
    )
    if not is_as_strict(policy.policy, before.policy):
        refuse_looser(ctx, policy.policy, "approval", before.policy)
    await ctx.store.set_inbox_policy(inbox.id, policy)
    return policy


class CheckPolicy(Request):
    """Say whether a mail would be sent, held for approval or refused, and why. Nothing is sent.

    The policies of this key, or of the caller, apply.
    """

    raw: Annotated[bytes, Field(description="The mail (RFC 5322), with its From, To, Cc and Bcc.")]
    key_id: Annotated[OptionalId, argument("Test it as mail of this key.", "key_3s8v5y")] = None


@operation(Scope.READ)
async def check_policy(ctx: RequestContext, request: CheckPolicy) -> Verdict:
    authors = ctx.caller.authors
    if request.key_id not in (None, ctx.caller.key_id):
        require_scope(ctx, Scope.ADMIN)
        refuse_if_limited(ctx)
        authors = (await _known_author(ctx, request.key_id or ""),)
    check_size(request.raw, ctx.limits.message_bytes)
    (parsed,) = await ctx.parser.parse([request.raw])
    sender = parsed.sender.address if parsed.sender else ""
    inbox = (await ctx.store.inboxes_at([sender])).get(sender.lower())
    if inbox is None or not ctx.visible.sees(inbox.id):
        raise NotFound("From: you have no inbox with this address; list_inboxes shows yours")
    addresses = distinct_addresses(
        a.address for a in parsed.addresses if a.role in ("to", "cc", "bcc")
    )
    if not addresses:
        raise InvalidInput("the mail has no recipients; give To, Cc or Bcc")
    outside = await recipients_outside(ctx, addresses, inbox)
    answered = parsed.in_reply_to and await ctx.store.message_by_internet_id(
        inbox.id, as_key(parsed.in_reply_to)
    )
    mail = GateRequest(
        0,
        hashlib.sha256(request.raw).hexdigest(),
        sender,
        addresses,
        outside,
        authors,
        sum(not a.inline for a in parsed.attachments),
        sum(found.chars for found in parsed.security.hidden_text),
        answered.thread_id if answered else None,
        await warn_of_disclosure(ctx, f"{parsed.subject}\n{parsed.text}", addresses),
        ctx.clock(),
    )
    return await verdict_of(ctx, mail, inbox)


async def recipients_outside(
    ctx: RequestContext, addresses: list[str], inbox: Inbox
) -> tuple[str, ...]:
    """The recipients to whom a mail of this inbox would leave."""
    local = await inboxes_for(ctx, addresses)
    routes = await route_all(ctx, addresses, local, inbox.account_id)
    return tuple(route.address for route in routes.values() if route.status == "queued")


async def verdict_of(ctx: RequestContext, mail: GateRequest, inbox: Inbox) -> Verdict:
    """What the policies say of a mail from an inbox."""
    outside = tuple(mail.external_recipients)
    try:
        hold = await ctx.store.evaluate_mail(mail, inbox.id, ctx.gate)
    except Forbidden as refused:
        return Verdict("refused", (str(refused),), tuple(mail.recipients))
    if hold is not None:
        return Verdict("held", hold.reasons, outside)
    return Verdict("leaves" if outside else "stays", (), outside)


async def _known_author(ctx: RequestContext, key_id: str) -> str:
    if key_id not in (OWNER.key_id, AGENT_ID) and not await ctx.store.has_key(key_id):
        raise NotFound(no_such("key", key_id))
    return key_id
