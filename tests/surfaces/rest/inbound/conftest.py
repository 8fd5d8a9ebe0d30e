"""A Postroom that five providers post to, and the world that it reads from."""

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
from tests.surfaces.rest.conftest import Rest, visiting
from tests.surfaces.rest.inbound.postings import (
    MAILGUN_KEY,
    NOW,
    RAW,
    RESEND_SECRET,
    TOPIC,
    amazon_certificate,
    sendgrid_public_key,
)


class Nearby(AddressGuard):
    """Finds every host on this machine."""

    async def resolve(self, host: str, port: int):
        return ip_address("127.0.0.1")


@dataclass(frozen=True)
class Elsewhere(HttpsFetcher):
    """Goes to the port of a server of ours instead of 443; the rest is real."""

    port: int = 0

    def _read(self, target, address, headers):
        connect = super()._read
        return connect(replace(target, port=self.port), address, headers)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HttpsPages]:
    """Amazon and Resend, as far as we read from them."""
    names = ("api.resend.com", "inbound-cdn.resend.com", "sns.eu-west-1.amazonaws.com")
    made = certificate(tmp_path / "world", *names)
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
async def services(tmp_path: Path, world: HttpsPages) -> AsyncIterator[App]:
    """A Postroom that all five may post to, in a world where it is always noon."""
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
    trusted = tmp_path / "world" / "api.resend.com.pem"
    fetcher = Elsewhere(
        Nearby(), 10_000_000, 5.0, lambda: ssl.create_default_context(cafile=trusted), world.port
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
async def stranger(services: App) -> AsyncIterator[Rest]:
    """Somebody without a key."""
    async with visiting(services, None) as rest:
        yield rest
