"""A Postroom that five providers post mail to, and stand-ins for the hosts that it reads from."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.providers.allowed_hosts import AddressGuard
from postroom.providers.http_clients import HttpsFetcher
from postroom.providers.inbound_json import Ses
from tests.mails import new_inbox
from tests.servers.certificates import certificate
from tests.servers.https import HttpsPages, pages
from tests.surfaces.rest.conftest import RestClient, rest_client
from tests.surfaces.rest.inbound.provider_requests import (
    MAILGUN_KEY,
    NOW,
    RAW,
    RESEND_SECRET,
    TOPIC,
    amazon_certificate,
    sendgrid_public_key,
)


class LoopbackResolver(AddressGuard):
    """Resolves every name to this machine."""

    async def resolve(self, host: str, port: int):
        return ip_address("127.0.0.1")


@dataclass(frozen=True)
class LocalTransport(HttpsFetcher):
    """Connects to a local port instead of 443; everything else is real."""

    port: int = 0

    def _read(self, target, address, headers):
        connect = super()._read
        return connect(replace(target, port=self.port), address, headers)


@pytest.fixture
async def provider_hosts(tmp_path: Path) -> AsyncIterator[HttpsPages]:
    """The hosts of Amazon and Resend from which the installation reads."""
    names = ("api.resend.com", "inbound-cdn.resend.com", "sns.eu-west-1.amazonaws.com")
    made = certificate(tmp_path / "provider_hosts", *names)
    async with pages(made.server()) as served:
        served.found = {
            "sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem": amazon_certificate(),
            "sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t": b"<ok/>",
            "api.resend.com/emails/receiving/56761188": json.dumps(
                {"raw": {"download_url": "https://inbound-cdn.resend.com/raw?signature=1"}}
            ).encode(),
            "inbound-cdn.resend.com/raw?signature=1": RAW,
        }
        yield served


@pytest.fixture
async def services(tmp_path: Path, provider_hosts: HttpsPages) -> AsyncIterator[App]:
    """A Postroom to which all five providers may post, with a clock that stands at noon."""
    values = {
        "DATA_DIR": str(tmp_path / "data"),
        "MAILGUN_SIGNING_KEY": MAILGUN_KEY,
        "SENDGRID_PUBLIC_KEY": sendgrid_public_key(),
        "RESEND_SIGNING_SECRET": RESEND_SECRET,
        "RESEND_API_KEY": "re_canary_of_resend",
        "SES_TOPICS": TOPIC,
        "POSTMARK_LOGIN": "postmark:canary-of-postmark",
    }
    settings = read_settings({f"POSTROOM_{name}": value for name, value in values.items()}).settings
    trusted = tmp_path / "provider_hosts" / "api.resend.com.pem"
    fetcher = LocalTransport(
        LoopbackResolver(),
        10_000_000,
        5.0,
        lambda: ssl.create_default_context(cafile=trusted),
        provider_hosts.port,
    )
    async with open_app(settings) as opened:
        inbound = {
            **opened.services.inbound,
            "resend": replace(opened.services.inbound["resend"], fetcher=fetcher),
            "ses": Ses((TOPIC,), fetcher),
        }
        await new_inbox(opened.context(OWNER))
        yield replace(opened, services=replace(opened.services, clock=lambda: NOW, inbound=inbound))


@pytest.fixture
async def anonymous(services: App) -> AsyncIterator[RestClient]:
    """A client without a key."""
    async with rest_client(services, None) as rest:
        yield rest
