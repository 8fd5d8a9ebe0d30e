"""What tests pass to `Services` for an installation without providers and webhooks."""

from collections.abc import Mapping
from typing import Any

from postroom.model.event import WebhookResponse
from postroom.ports.provider import Providers, WebhookClient


class NoProviders(Providers):
    """There is no account to open."""


class NoWebhookClient(WebhookClient):
    """A client that posts nothing."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        return WebhookResponse(None, "webhooks are not available here")


NO_PROVIDERS: dict[str, Any] = {"providers": NoProviders(), "webhook_client": NoWebhookClient()}
