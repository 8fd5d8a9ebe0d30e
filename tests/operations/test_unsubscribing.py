"""Unsubscribing by one click or by mail; a plain link is left to the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, InvalidInput, ProviderError
from postroom.mail.senders import Trust
from postroom.model.event import WebhookResponse
from postroom.model.inbox import Inbox
from postroom.model.mail.sending import Unsubscribed
from postroom.operations.mail.messages import get_message
from postroom.operations.mail.unsubscribing import unsubscribe
from postroom.operations.outgoing.outbox import list_outbox
from postroom.providers.allowed_hosts import AddressGuard
from postroom.providers.http_clients import HttpWebhookClient
from tests.mails import deliver, mail

URL = "https://news.example/u?id=7"
ADDRESS = "mailto:leave@news.example?subject=leave%20me&body=list=7"
CLICK = ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
PASSED = ("Authentication-Results", "mx.example; dkim=pass header.d=example.com")
FAILED = ("Authentication-Results", "mx.example; dkim=fail header.d=example.com")
SIGNED = (
    "DKIM-Signature",
    "v=1; d=example.com; s=a; h=From:List-Unsubscribe:List-Unsubscribe-Post; bh=x; b=x",
)
HALF = ("DKIM-Signature", "v=1; d=example.com; s=a; h=From:List-Unsubscribe; bh=x; b=x")


@dataclass
class FakePoster:
    """Records the requests, and returns the configured response."""

    answer: WebhookResponse = WebhookResponse(200, "OK")
    posted: list[tuple[str, bytes]] = field(default_factory=list)

    def check(self, url: str) -> None:
        if "192.168." in url:
            raise InvalidInput("url: this address is not on the public Internet")

    def public(self) -> FakePoster:
        return self

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        assert {"Content-Type": "application/x-www-form-urlencoded"} == headers
        self.posted.append((url, body))
        return self.answer


@pytest.fixture
def poster() -> FakePoster:
    return FakePoster()


@pytest.fixture
def asking(ctx: RequestContext, poster: FakePoster) -> RequestContext:
    return replace(ctx, webhook_client=poster, trust=Trust(frozenset({"mx.example"})))


def ways(*targets: str) -> tuple[str, str]:
    return ("List-Unsubscribe", ", ".join(f"<{target}>" for target in targets))


async def ask(
    ctx: RequestContext, inbox: Inbox, *headers: tuple[str, str]
) -> tuple[Unsubscribed, list[tuple[str, ...]]]:
    """The result of unsubscribing, and the mail that was sent, if any."""
    added = await deliver(ctx, inbox, mail("News", headers=headers))
    answer = await call(ctx, unsubscribe, {"message_id": added.message_id})
    sent = (await call(ctx, list_outbox, {"status": "captured"})).results
    return answer, [(one.subject, one.recipients[0].address) for one in sent]


async def test_a_private_network_of_the_webhooks_is_not_one_for_senders(
    ctx: RequestContext, inbox: Inbox
) -> None:
    """A sender could have the server post to a machine behind it."""
    allowing = HttpWebhookClient(AddressGuard((ip_network("192.168.0.0/16"),)))
    asking = replace(ctx, webhook_client=allowing, trust=Trust(frozenset({"mx.example"})))
    allowing.check("https://192.168.1.1/")

    both = ways("https://192.168.1.1/off", ADDRESS)
    answer, sent = await ask(asking, inbox, PASSED, SIGNED, CLICK, both)

    assert ("mail", 1) == (answer.method, len(sent))
    assert "not on the public Internet" in (answer.warnings or ("",))[0]


BY_MAIL = [("leave me", "leave@news.example")]


async def test_one_click_unsubscribing_is_a_single_post(
    asking: RequestContext, inbox: Inbox, poster: FakePoster
) -> None:
    answer, sent = await ask(asking, inbox, PASSED, SIGNED, CLICK, ways(ADDRESS, URL))

    assert ("one_click", "accepted", "news.example", None) == (
        answer.method, answer.status, answer.host, answer.warnings
    )  # fmt: skip
    assert [(URL, b"List-Unsubscribe=One-Click")] == poster.posted
    assert [] == sent


@pytest.mark.parametrize(
    ("headers", "warns"),
    [
        ((PASSED, SIGNED, ways(ADDRESS, URL)), False),
        ((PASSED, HALF, CLICK, ways(ADDRESS, URL)), True),
        ((PASSED, SIGNED, HALF, CLICK, ways(ADDRESS, URL)), True),
        ((PASSED, CLICK, ways(ADDRESS, URL)), True),
        ((FAILED, SIGNED, CLICK, ways(ADDRESS, URL)), True),
        ((SIGNED, CLICK, ways(ADDRESS, URL)), True),
        ((PASSED, SIGNED, CLICK, ways(ADDRESS, "http://news.example/u")), False),
        ((ways(ADDRESS),), False),
    ],
    ids=["no post", "half", "one half", "unsigned", "failed", "unknown", "http", "mail only"],
)
async def test_without_one_click_a_mail_is_sent(
    asking: RequestContext,
    inbox: Inbox,
    poster: FakePoster,
    headers: tuple[tuple[str, str], ...],
    warns: bool,
) -> None:
    answer, sent = await ask(asking, inbox, *headers)

    assert ("mail", "captured", "leave@news.example") == (
        answer.method, answer.status, answer.mailto
    )  # fmt: skip
    assert (BY_MAIL, []) == (sent, poster.posted)
    assert warns is bool(answer.warnings)


async def test_an_unverified_one_click_url_is_used_with_a_warning(
    asking: RequestContext, inbox: Inbox, poster: FakePoster
) -> None:
    answer, _ = await ask(asking, inbox, CLICK, ways(URL))

    assert ("one_click", 1) == (answer.method, len(poster.posted))
    assert "POSTROOM_TRUSTED_SERVERS" in (answer.warnings or ("",))[0]


@pytest.mark.parametrize(
    "answer",
    [WebhookResponse(302, "Found"), WebhookResponse(500, "Oops"), WebhookResponse(None, "late")],
)
async def test_a_failed_one_click_request_falls_back_to_mail(
    asking: RequestContext, inbox: Inbox, poster: FakePoster, answer: WebhookResponse
) -> None:
    poster.answer = answer
    told, sent = await ask(asking, inbox, PASSED, SIGNED, CLICK, ways(URL, ADDRESS))

    assert ("mail", BY_MAIL, 1) == (told.method, sent, len(poster.posted))
    assert "did not accept" in (told.warnings or ("",))[0]


async def test_a_failed_one_click_request_without_address_is_an_error(
    asking: RequestContext, inbox: Inbox, poster: FakePoster
) -> None:
    poster.answer = WebhookResponse(500, "Oops")
    with pytest.raises(ProviderError, match="500 Oops"):
        await ask(asking, inbox, PASSED, SIGNED, CLICK, ways(URL))


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ((ways(URL),), "a person must open it"),
        ((PASSED, SIGNED, CLICK, ways("http://news.example/u")), "a person must open it"),
        ((PASSED, HALF, CLICK, ways(URL)), "a person must decide"),
        ((FAILED, SIGNED, CLICK, ways(URL)), "a person must decide"),
        ((), "has no way"),
        ((ways("mailto:a@b.example,c@d.example"),), "has no way"),
    ],
)
async def test_a_plain_link_is_refused(
    asking: RequestContext,
    inbox: Inbox,
    poster: FakePoster,
    headers: tuple[tuple[str, str], ...],
    words: str,
) -> None:
    with pytest.raises(Conflict, match=words):
        await ask(asking, inbox, *headers)

    assert [] == poster.posted


async def test_a_private_address_is_never_posted_to(
    asking: RequestContext, inbox: Inbox, poster: FakePoster
) -> None:
    url = "https://192.168.0.1/u"
    with pytest.raises(ProviderError, match="not on the public Internet"):
        await ask(asking, inbox, PASSED, SIGNED, CLICK, ways(url))

    assert [] == poster.posted


async def test_a_repeated_call_sends_one_mail(asking: RequestContext, inbox: Inbox) -> None:
    added = await deliver(asking, inbox, mail("News", headers=[ways(ADDRESS)]))
    answers = [await call(asking, unsubscribe, {"message_id": added.message_id}) for _ in "12"]

    assert 1 == len({answer.sent_message_id for answer in answers})


async def test_a_message_lists_the_ways_to_unsubscribe_without_links(
    asking: RequestContext, inbox: Inbox
) -> None:
    added = await deliver(asking, inbox, mail("News", headers=[CLICK, ways(ADDRESS, URL)]))
    found = (await call(asking, get_message, {"message_id": added.message_id})).list_unsubscribe

    assert found is not None
    assert (True, "leave@news.example", "news.example") == (
        found.one_click, found.mailto, found.host
    )  # fmt: skip
    assert "id=7" not in repr(found)


@pytest.mark.parametrize(
    "target",
    [
        "mailto:leave@news.example?subject=x%0D%0ABcc:%20eve@example.com",
        "mailto:leave@news.example?bcc=eve@example.com&cc=eve@example.com",
    ],
)
async def test_a_mailto_cannot_write_to_others(
    asking: RequestContext, inbox: Inbox, target: str
) -> None:
    answer, _ = await ask(asking, inbox, ways(target))
    asked = {"message_id": answer.sent_message_id or "", "include_headers": True}
    message = await call(asking, get_message, asked)

    assert ("leave@news.example",) == message.to_addresses
    assert 1 == len(message.recipients or ())
    assert not [h for h in message.headers or () if h.name.lower() in ("cc", "bcc")]
