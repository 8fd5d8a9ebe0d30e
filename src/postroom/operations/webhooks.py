"""Programs that want to be told: named, listed, renewed, forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.model.webhook import Webhook, WebhookDelivery, new_webhook_secret
from postroom.operations.context import Context
from postroom.operations.events import EventName
from postroom.operations.inboxes import inbox_of
from postroom.operations.operation import operation
from postroom.operations.request import Accepts, Id, Paged, Request

WebhookId = Annotated[Id, Field(description="The webhook.", examples=["whk_2f7j4s"])]


class CreateWebhook(Request):
    """Be told of events at a URL. The answer is the only one that shows the secret."""

    url: Annotated[
        str,
        Field(
            min_length=8,
            max_length=2000,
            description="Where to tell it.",
            examples=["https://example.com/hook"],
        ),
        Accepts({"pattern": r"^https?://[A-Za-z0-9.-]+\.[a-z]{2,20}(?:[/?#][!-\[\]-~]*)?$"}),
    ]
    types: Annotated[
        list[EventName],
        Field(
            max_length=20,
            description="Only these types; without: all.",
            examples=[["message.received"]],
        ),
    ] = []
    inboxes: Annotated[
        list[Id] | None,
        Field(
            min_length=1,
            max_length=1000,
            description="Only these inboxes; without: all.",
            examples=[["inb_7k2m9q"]],
        ),
    ] = None


@operation(Scope.ADMIN)
async def create_webhook(ctx: Context, request: CreateWebhook) -> Webhook:
    ctx.poster.check(request.url)
    inboxes = request.inboxes
    if inboxes is None and ctx.visible is not None:
        inboxes = sorted(ctx.visible)
    for inbox_id in inboxes or ():
        await inbox_of(ctx, inbox_id)
    webhook = Webhook(
        id=ctx.new_id("whk"),
        url=request.url,
        types=tuple(dict.fromkeys(request.types)),
        inboxes=None if inboxes is None else tuple(dict.fromkeys(inboxes)),
        created_at=ctx.clock().replace(microsecond=0),
        secret=new_webhook_secret(),
    )
    await ctx.store.add_webhook(webhook)
    return webhook


class ListWebhooks(Paged):
    """List the webhooks, oldest first; their secrets are not shown."""


@operation(Scope.ADMIN)
async def list_webhooks(ctx: Context, request: ListWebhooks) -> Page[Webhook]:
    found = await ctx.store.webhooks(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class DeleteWebhook(Request):
    """Tell a webhook nothing more."""

    webhook_id: WebhookId


@operation(Scope.ADMIN, destroys=True)
async def delete_webhook(ctx: Context, request: DeleteWebhook) -> None:
    await ctx.store.remove_webhook(request.webhook_id, ctx.visible)


class RenewWebhook(Request):
    """Give a webhook a new secret; for a day the old one signs as well."""

    webhook_id: WebhookId


@operation(Scope.ADMIN)
async def renew_webhook(ctx: Context, request: RenewWebhook) -> Webhook:
    secret = new_webhook_secret()
    webhook = await ctx.store.renew_webhook(request.webhook_id, secret, ctx.visible, ctx.clock())
    return replace(webhook, secret=secret)


class ListDeliveries(Paged):
    """List what a webhook was told and what it answered, newest first."""

    webhook_id: WebhookId


@operation(Scope.ADMIN)
async def list_deliveries(ctx: Context, request: ListDeliveries) -> Page[WebhookDelivery]:
    found = await ctx.store.webhook_deliveries(
        request.webhook_id, ctx.visible, ctx.cursors.slice(request)
    )
    return ctx.cursors.page(request, found)


class Redeliver(Request):
    """Tell a webhook once more of something."""

    webhook_id: WebhookId
    delivery_id: Annotated[Id, Field(description="The delivery.", examples=["dlv_9w3b7m"])]


@operation(Scope.ADMIN)
async def redeliver(ctx: Context, request: Redeliver) -> WebhookDelivery:
    return await ctx.store.redeliver(
        request.webhook_id, request.delivery_id, ctx.visible, ctx.clock()
    )
