"""No URL of a webhook leads into the local network, in any spelling."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from postroom.errors import InvalidInput
from postroom.model.event import WebhookResponse
from postroom.providers.allowed_hosts import AddressGuard, parse_target
from postroom.providers.http_clients import HttpWebhookClient

PRIVATE = [
    "127.0.0.1", "127.1", "127.0.0.2", "0.0.0.0", "0", "10.0.0.1", "10.255.255.255", "172.16.0.1",
    "172.31.255.255", "192.168.0.1", "192.168.255.255", "169.254.169.254", "169.254.0.1",
    "100.64.0.1", "100.127.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "192.88.99.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
    "0x7f.1", "3232235521", "0xc0a80001", "0300.0250.0.1", "2852039166", "0xa9fea9fe",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::10.0.0.1]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a00:1::]",
    "[2002:c0a8:1::]", "[2002:a9fe:a9fe::]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]",
    "[fd00::1]", "[fd12:3456:789a::1]", "[fec0::1]", "[ff02::1]", "[ff00::]", "[2001:db8::1]",
    "[100::1]", "[2001::1]", "[2001:0:7f00:1::]", "192.0.0.8", "[::ffff:0:127.0.0.1]",
    "[::ffff:0:a9fe:a9fe]", "[64:ff9b:1:7f00:0:100:808:808]", "[64:ff9b:1::808:808]",
]  # fmt: skip
FORMS = ["http://{}/", "https://{}/x", "http://{}:8080/"]


@pytest.mark.parametrize("host", PRIVATE)
def test_no_spelling_of_a_private_address_is_accepted(host: str) -> None:
    for form in FORMS:
        with pytest.raises(InvalidInput):
            AddressGuard().check(form.format(host))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com/",
        "http://user:pw@example.com/", "http://user@example.com/", "http://", "http:///x",
        "http://exa mple.com/", "http://example.com/a b", "http://example.com/\r\nX: y",
        "http://example.com\\@127.0.0.1/", "http://example.com:99999/", "http://ex\u00e4mple.com/",
        "javascript:alert(1)", "http://[::1", "",
    ],
)  # fmt: skip
def test_an_invalid_url_is_refused_for_a_webhook(url: str) -> None:
    with pytest.raises(InvalidInput):
        AddressGuard().check(url)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111"])
def test_public_addresses_are_accepted(address: str) -> None:
    assert AddressGuard().is_allowed(ip_address(address))


async def test_a_refused_connection_is_explained() -> None:
    posted = await HttpWebhookClient(AddressGuard((ip_network("127.0.0.0/8"),))).post(
        "http://127.0.0.1:1/", {}, b""
    )

    assert WebhookResponse(None, "no response: connection refused") == posted


async def test_a_name_that_resolves_to_a_private_address_is_refused_at_delivery() -> None:
    posted = await HttpWebhookClient().post("http://localhost:1/", {}, b"")

    assert (None, True) == (posted.code, posted.detail.startswith("refused"))


def test_the_name_stays_in_the_request_while_the_address_is_pinned() -> None:
    assert "example.com:8080" == parse_target("http://example.com:8080/x").authority
    assert "[2606:4700::1]" == parse_target("https://[2606:4700::1]/x").authority


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.localhost"])
def test_the_name_of_this_machine_is_refused_with_the_setting_that_allows_it(host: str) -> None:
    for form in FORMS:
        with pytest.raises(InvalidInput, match="POSTROOM_WEBHOOK_ALLOW=127"):
            AddressGuard().check(form.format(host))
        AddressGuard((ip_network("127.0.0.0/8"),)).check(form.format(host))
