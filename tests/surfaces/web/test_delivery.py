"""Delivery of pages: compression, CSRF tokens, and redirects to the sign-in."""

from __future__ import annotations

import pytest

from postroom.surfaces.web.rendering import ASSETS, accepts_gzip, asset, asset_url, compressed_asset
from postroom.surfaces.web.signing_in import form_token, is_form_token
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

MOST_BYTES = 60 * 1024


def test_scripts_and_styles_are_small() -> None:
    assert sum(len(compressed_asset(name)) for name in ASSETS) <= MOST_BYTES


@pytest.mark.parametrize("name", ASSETS)
async def test_an_asset_is_compressed_and_cacheable(anonymous: WebUser, name: str) -> None:
    plain = await anonymous.get(asset_url(name), headers={"Accept-Encoding": "identity"})
    small = await anonymous.get(asset_url(name), headers={"Accept-Encoding": "br, gzip"})

    assert asset(name) == plain.content == small.content
    assert "content-encoding" not in plain.headers
    assert "gzip" == small.headers["content-encoding"]
    assert str(len(compressed_asset(name))) == small.headers["content-length"]
    for response in (plain, small):
        assert "immutable" in response.headers["cache-control"]
        assert "Accept-Encoding" == response.headers["vary"]
        assert ASSETS[name] == response.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/rules/rul_none", "no rule rul_none"),
        ("/rules/plans/pln_none", "no plan pln_none, or it has expired"),
        ("/accounts/none", "no account none"),
        ("/memories/read?key=none", "no memory none in the namespace default"),
        ("/mail?inbox=inb_none", "no inbox inb_none"),
    ],
)
async def test_an_error_on_a_page_names_no_operation(
    owner: WebUser, path: str, reason: str
) -> None:
    said = words((await owner.get(path)).text)

    assert reason in said
    assert f"{reason};" not in said


async def test_a_page_is_compressed_if_the_browser_accepts_it(owner: WebUser) -> None:
    plain = await owner.get("/sessions", headers={"Accept-Encoding": "gzip;q=0"})
    small = await owner.get("/sessions", headers={"Accept-Encoding": "gzip"})

    assert "content-encoding" not in plain.headers
    assert "gzip" == small.headers["content-encoding"]
    assert int(small.headers["content-length"]) < len(plain.content) / 2
    assert "no-store" == small.headers["cache-control"]


@pytest.mark.parametrize(
    ("header", "is_accepted"),
    [
        ("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("GZIP", True), ("", False),
        ("br", False), ("gzip;q=0", False), ("gzip; q=0.0, br", False), ("*;q=0", False),
        ("gzip;q=much", False), ("gzipped", False),
    ],
)  # fmt: skip
def test_accept_encoding_is_parsed(header: str, *, is_accepted: bool) -> None:
    assert is_accepted == accepts_gzip(header)


def test_csrf_tokens_differ_and_belong_to_a_session() -> None:
    first, second = form_token("secret"), form_token("secret")

    assert first != second
    assert is_form_token(first, "secret")
    assert is_form_token(second, "secret")
    assert not is_form_token(first, "other")
    for forged in ("", "0" * 64, "0" * 128, "0" * 256, first[:-2], first + "00", "é" * 128, "zz"):
        assert not is_form_token(forged, "secret")


async def test_a_token_of_an_earlier_page_is_accepted(owner: WebUser) -> None:
    token = await owner.token()
    assert token != await owner.token()

    response = await owner.post("/signout", token=token)

    assert "/signin?notice=signed+out" == response.headers["location"]


@pytest.mark.parametrize(
    ("here", "to"),
    [
        ("/mail?q=a%20b", "/signin?next=/mail%3Fq%3Da%2520b"),
        ("", "/signin"),
        ("/", "/signin"),
        ("http://[", "/signin"),
        ("//evil.example/x", "/signin?next=/x"),
    ],
)
async def test_a_script_without_a_session_is_redirected_to_the_sign_in(
    anonymous: WebUser, installation: WebInstallation, here: str, to: str
) -> None:
    at = {
        "HX-Request": "true",
        "HX-Current-URL": installation.url + here if here[:2] == "/m" else here,
    }

    for response in (
        await anonymous.get("/mail", headers=at),
        await anonymous.http.post("/mail", data={"do": "read"}, headers=at),
    ):
        assert (401, to) == (response.status_code, response.headers["hx-redirect"])
        assert "" == response.text


@pytest.mark.parametrize("path", ["/nothing", "/mails/1", "/mail/a/b/c", "/assets/nothing", "/..."])
async def test_a_wrong_address_is_a_page_in_a_browser(anonymous: WebUser, path: str) -> None:
    page = await anonymous.get(path, headers={"Accept": "text/html,*/*;q=0.8"})

    assert (404, "text/html; charset=utf-8") == (page.status_code, page.headers["content-type"])
    assert "there is no page at this address" in words(page.text)


@pytest.mark.parametrize(
    ("path", "accepts"), [("/nothing", "*/*"), ("/v1/nothing", "text/html"), ("/v1", "*/*")]
)
async def test_a_wrong_address_of_the_api_is_json(
    anonymous: WebUser, path: str, accepts: str
) -> None:
    answer = await anonymous.get(path, headers={"Accept": accepts})

    assert (404, "not_found") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize(
    ("path", "form", "problem"),
    [
        ("/compose", {"do": "send", "to": "nobody", "body_text": "Hi"}, "To: 'nobody' is not an "),
        ("/compose", {"do": "send", "to": "a@b.example", "subject": "Hi"}, "give Text or HTML"),
        ("/webhooks/new", {"url": "example.com"}, "URL: write it as https://"),
        ("/rules/new", {"do": "save", "rule_yaml": "when: 7"}, "Rule: line 1"),
    ],
)
async def test_an_error_of_a_form_names_its_fields(
    owner: WebUser, path: str, form: dict[str, str], problem: str
) -> None:
    response = await owner.post(path, **form)

    assert problem in words(response.text.partition('role="alert">')[2])


async def test_a_command_in_an_error_is_shown_as_code(anonymous: WebUser) -> None:
    refused = await anonymous.post("/signin", key="wrong")

    assert "<code>postroom key create</code>" in refused.text
