"""Whether what a key began may go on: a webhook is told, and a scheduled mail sent, for its key.

Both end with the key that made them, as rules do: it was revoked, has expired, or has
lost a right since.
"""

from __future__ import annotations

from collections.abc import Iterable

from postroom.model.event import Webhook
from postroom.model.key import OWNER, Caller, Scope
from postroom.model.view import Everything, View
from postroom.pipeline.apply_rules import current_callers
from postroom.pipeline.services import Services

_TELLING = (Scope.ADMIN, Scope.READ)
_TAKE_OVER = "renewing its secret with another key makes it a webhook of that key"


async def webhook_refusal(services: Services, made_by: str | None, inboxes: View) -> str:
    """Why a webhook is told nothing of these inboxes any more; empty if it is."""
    if not made_by or made_by == OWNER.key_id:
        return ""
    callers = await current_callers(services, [made_by])
    why = _lost(callers.get(made_by), _TELLING, inboxes)
    return why and f"the key that made this webhook {why}; {_TAKE_OVER}"


async def stopped_webhooks(services: Services, webhooks: Iterable[Webhook]) -> dict[str, str]:
    """The webhooks that are told nothing any more, by id, with the reason."""
    reasons = {
        webhook.id: await webhook_refusal(services, webhook.made_by, webhook.inboxes)
        for webhook in webhooks
    }
    return {webhook_id: why for webhook_id, why in reasons.items() if why}


async def send_refusal(services: Services, sent_by: str | None, inbox: View) -> str:
    """Why a scheduled mail is not sent; empty if it is."""
    if not sent_by or sent_by == OWNER.key_id:
        return ""
    callers = await current_callers(services, [sent_by])
    why = _lost(callers.get(sent_by), (Scope.SEND,), inbox)
    return why and f"not sent: the key that scheduled it {why}; retry it to send it now"


def _lost(caller: Caller | None, scopes: Iterable[Scope], inboxes: View) -> str:
    if caller is None:
        return "was revoked or has expired"
    missing = [scope for scope in scopes if scope not in caller.scopes]
    if missing:
        return f"lacks the scope {missing[0]}"
    seen = caller.inboxes
    if isinstance(seen, Everything):
        return ""
    # The webhook of a rule names no inbox itself.
    is_seen = not isinstance(inboxes, Everything) and inboxes.ids - seen.gone <= seen.ids
    return "" if is_seen else "may no longer see its inboxes"
