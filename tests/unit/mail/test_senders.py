from __future__ import annotations

import pytest

from postroom.mail.parse import parse_message
from postroom.mail.senders import (
    Auth,
    Trust,
    authenticate,
    find_imitated_domain,
    read_auth,
)


def lookalikes(*headers: str) -> tuple[str, ...]:
    return parse_message("\n".join((*headers, "", "Hi")).encode()).security.lookalike


@pytest.mark.parametrize(
    "sender",
    [
        '"support@bank.example" <x@evil.example>',
        "Bank <x@xn--80ak6aa92e.com>",
        "Bank <x@аррӏе.com>",
        "Bank <x@pаypal.com>",
        "=?utf-8?q?P=D0=B0ypal?= <x@evil.example>",
        "a@b.example, c@d.example",
        "ceo\u200b@corp.example",
        "Ceo <c\u00adeo@corp.example>",
        "Ceo <ceo@co\u2060rp.example>",
        "Ceo <ceo\U000e0041@corp.example>",
        "Ceo <ceo\x01@corp.example>",
        "Ceo <ceo\x00@corp.example>",
        "ceo\x00@corp.example (Ceo)",
        "=?utf-8?q?ceo=E2=80=8B=40corp.example?=",
        "Ceo <ceo\ufe0f@corp.example>",
    ],
)
def test_a_deceptive_sender_is_flagged(sender: str) -> None:
    assert lookalikes(f"From: {sender}")


@pytest.mark.parametrize(
    "sender",
    [
        "Ada <ada@example.org>",
        '"ada@example.org" <ada@mail.example.org>',
        "Jürgen <j@münchen.example>",
        "Ada <ada@xn--mnchen-3ya.example>",
        "Иван Петров <ivan@почта.рф>",
        "田中 Taro <taro@example.jp>",
    ],
)
def test_an_ordinary_sender_is_not_flagged(sender: str) -> None:
    assert () == lookalikes(f"From: {sender}")


def test_replies_that_go_elsewhere_are_flagged() -> None:
    assert lookalikes("From: ada@bank.example", "Reply-To: x@evil.example")
    assert not lookalikes("From: ada@bank.example", "Reply-To: x@mail.bank.example")
    assert not lookalikes("From: ada@bank.example", "Reply-To: l@list.example", "List-Id: <l>")
    assert not lookalikes("From: ada@bank.example", "Reply-To: l@l.example", "To: l@l.example")


@pytest.mark.parametrize(
    ("domain", "known"),
    [
        ("paypa1.com", "paypal.com"),
        ("paypall.com", "paypal.com"),
        ("arnazon.com", "amazon.com"),
        ("exampel.org", "example.org"),
        ("xn--pypal-4ve.com", "paypal.com"),
    ],
)
def test_a_domain_that_imitates_a_known_one_is_found(domain: str, known: str) -> None:
    assert known == find_imitated_domain(domain, ["other.example", known])


@pytest.mark.parametrize("domain", ["paypal.com", "mail.paypal.com", "example.net", "visa.com"])
def test_other_domains_imitate_nobody(domain: str) -> None:
    assert find_imitated_domain(domain, ["paypal.com", "visa.com"]) is None


RESULTS = (
    "mx.example.org (good); dkim=fail header.d=evil.example; dkim=pass (x) header.d=bank.example;"
    " spf=softfail smtp.mailfrom=x@evil.example; dmarc=pass header.from=bank.example"
)


def test_a_trusted_server_is_believed() -> None:
    auth = read_auth(
        [("Authentication-Results", RESULTS)],
        trusted={"mx.example.org"},
        from_address="ada@mail.bank.example",
    )

    assert Auth(spf="softfail", dkim="pass", dmarc="pass", aligned=True) == auth


def test_an_untrusted_server_is_not_believed() -> None:
    forged = [("Authentication-Results", RESULTS.replace("mx.", "mx.evil."))]

    assert Auth() == read_auth(forged, trusted={"mx.example.org"}, from_address="a@bank.example")


def test_only_the_topmost_result_counts() -> None:
    headers = [
        ("Authentication-Results", "mx.example.org; spf=fail smtp.mailfrom=evil.example"),
        ("Authentication-Results", RESULTS),
    ]

    auth = read_auth(headers, trusted={"mx.example.org"}, from_address="a@bank.example")

    assert Auth(spf="fail") == auth


def test_a_pass_for_another_domain_is_not_aligned() -> None:
    header = "mx.example.org; dkim=pass header.d=evil.example; spf=pass smtp.mailfrom=evil.example"

    auth = read_auth(
        [("Authentication-Results", header)],
        trusted={"mx.example.org"},
        from_address="a@bank.example",
    )

    assert Auth(spf="pass", dkim="pass", aligned=False) == auth


@pytest.mark.parametrize(
    "header",
    [
        'mx.example.org; spf=fail smtp.mailfrom="a; dkim=pass header.d=bank.example;"@evil.example',
        'mx.example.org; spf=fail smtp.mailfrom="a dkim=pass header.d=bank.example"@evil.example',
        "mx.example.org; spf=fail (dkim=pass header.d=bank.example; dmarc=pass)",
        "mx.example.org; spf=fail smtp.mailfrom=x@dkim=pass; x=y header.d=bank.example",
        "mx.example.org; spf=fail smtp.mailfrom=a@b; iprev=pass policy.x=dkim=pass",
        "mx.example.org; spf=fail smtp.mail==?utf-8?q?a=3B_dkim=3Dpass_header=2Ed=3Dbank?=@b",
    ],
)
def test_authentication_results_of_a_sender_do_not_count(header: str) -> None:
    raw = f"Authentication-Results: {header}\nFrom: a@bank.example\n\nHi".encode()

    auth = authenticate(raw, parse_message(raw), Trust(frozenset(["mx.example.org"])))

    assert Auth(spf="fail") == auth


def test_dmarc_passes_for_the_domain_it_names() -> None:
    header = "mx.example.org; dmarc=pass header.from=evil.example"
    headers = [("Authentication-Results", header)]

    auth = read_auth(headers, trusted={"mx.example.org"}, from_address="a@bank.example")

    assert Auth(dmarc="pass", aligned=False) == auth


@pytest.mark.parametrize("second", ["From: eve@evil.example\n", ""])
def test_a_mail_with_a_second_author_is_aligned_with_nobody(second: str) -> None:
    authors = "ada@bank.example" if second else "ada@bank.example, eve@evil.example"
    raw = f"Authentication-Results: {RESULTS}\nFrom: {authors}\n{second}\nHi".encode()

    auth = authenticate(raw, parse_message(raw), Trust(frozenset(["mx.example.org"])))

    assert ("pass", False) == (auth.dmarc, auth.aligned)
