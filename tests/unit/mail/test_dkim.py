"""Verification of signatures made by dkimpy."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from postroom.mail.dkim import Verdict, check_signatures, read_keys
from postroom.mail.parse import parse_message
from postroom.mail.senders import Auth, Trust, authenticate
from tests.servers import dkimpy

MAIL = (
    b"From: Ada <ada@bank.example>\r\nTo: bo@postroom.localhost\r\nSubject:  Hello \r\n there\r\n"
    b"Date: Sun, 1 Mar 2026 09:00:00 +0000\r\nMessage-ID: <1@bank.example>\r\n\r\n"
    b"Good  morning. \r\n\tA line\r\n\r\n\r\n"
)
NAME = "mail._domainkey.bank.example"


@pytest.fixture(scope="module")
def rsa() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=1024)


@pytest.fixture(scope="module")
def keys(rsa: RSAPrivateKey) -> dict[str, str]:
    return {NAME: f"v=DKIM1; k=rsa; p={public(rsa)}"}


def public(key: RSAPrivateKey) -> str:
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(der).decode()


def signed(rsa: RSAPrivateKey, raw: bytes = MAIL, **options: object) -> bytes:
    pem = rsa.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    domain = options.pop("domain", b"bank.example")
    header: bytes = dkimpy.sign(raw, b"mail", domain, pem, **options)
    return header + raw


def results(raw: bytes, keys: dict[str, str]) -> list[str]:
    return [verdict.result for verdict in check_signatures(raw, keys)]


@pytest.mark.parametrize("field_form", [b"simple", b"relaxed"])
@pytest.mark.parametrize("body_form", [b"simple", b"relaxed"])
@pytest.mark.parametrize("raw", [MAIL, MAIL.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"])
def test_a_good_signature_passes(rsa, keys, field_form: bytes, body_form: bytes, raw) -> None:
    mail = signed(rsa, raw, canonicalize=(field_form, body_form))

    assert [Verdict("pass", "bank.example")] == check_signatures(mail, keys)
    assert ["pass"] == results(mail.replace(b"\r\n", b"\n"), keys)


def test_the_ed25519_signature_of_the_standard_passes() -> None:
    """RFC 8463, appendix A."""
    raw = (
        b"DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n"
        b" d=football.example.com; i=@football.example.com;\r\n"
        b" q=dns/txt; s=brisbane; t=1528637909; h=from : to :\r\n"
        b" subject : date : message-id : from : subject : date;\r\n"
        b" bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n"
        b" b=/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus\r\n"
        b" Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==\r\n"
        b"From: Joe SixPack <joe@football.example.com>\r\n"
        b"To: Suzie Q <suzie@shopping.example.net>\r\n"
        b"Subject: Is dinner ready?\r\n"
        b"Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n"
        b"Message-ID: <20030712040037.46341.5F8J@football.example.com>\r\n"
        b"\r\nHi.\r\n\r\nWe lost the game.  Are you hungry yet?\r\n\r\nJoe.\r\n"
    )
    key = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

    assert ["pass"] == results(raw, {"brisbane._domainkey.football.example.com": key})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Good", b"Bad"),
        (b"Subject:  Hello", b"Subject: Bye"),
        (b"From: Ada", b"From: Eve"),
        (b"From: Ada", b"Subject: Wire the money\r\nFrom: Ada"),
        (b"DKIM-Signature:", b"From: eve@evil.example\r\nDKIM-Signature:"),
        (b"; s=mail", b"; s=mail; x=1"),
    ],
)
def test_a_modified_mail_fails(rsa, keys, old: bytes, new: bytes) -> None:
    mail = signed(rsa)

    assert old in mail
    assert ["fail"] == results(mail.replace(old, new, 1), keys)


def test_a_signature_of_a_part_of_the_body_is_no_proof(rsa, keys) -> None:
    mail = signed(rsa, length=True)

    assert ["policy"] == results(mail, keys)
    assert ["policy"] == results(mail + b"Wire the money\r\n", keys)


def test_revoked_short_and_unknown_keys_fail(rsa, keys) -> None:
    mail = signed(rsa)
    short = generate_private_key(public_exponent=65537, key_size=1024)

    assert ["fail"] == results(mail, {NAME: "v=DKIM1; p="})
    assert ["fail"] == results(mail, {NAME: f"v=DKIM1; p={public(short)}"})
    assert ["fail"] == results(mail, {NAME: keys[NAME].replace("rsa", "ed25519")})
    assert ["fail"] == results(mail, {NAME: "v=DKIM1; p=!!!"})


def test_without_the_key_there_is_no_result(rsa, keys) -> None:
    assert [] == results(signed(rsa), {"other._domainkey.bank.example": keys[NAME]})
    assert [] == results(MAIL, keys)
    assert [] == results(signed(rsa), {})


def test_a_signature_counts_for_its_own_domain_only(rsa, keys) -> None:
    elsewhere = {"mail._domainkey.evil.example": keys[NAME]}
    own, other = signed(rsa), signed(rsa, domain=b"evil.example")

    assert Auth(dkim="pass", aligned=True) == auth(own, Trust(keys=keys))
    assert Auth(dkim="pass", aligned=False) == auth(other, Trust(keys=elsewhere))


def auth(raw: bytes, trust: Trust) -> Auth:
    return authenticate(raw, parse_message(raw), trust)


def test_a_trusted_servers_result_counts_if_the_mail_was_modified_since(rsa, keys) -> None:
    verdict = b"Authentication-Results: mx.example.org; dkim=pass header.d=bank.example\r\n"
    changed = verdict + signed(rsa).replace(b"Good", b"[list] Good")
    trust = Trust(frozenset(["mx.example.org"]), keys)

    assert Auth(dkim="pass", aligned=True) == auth(changed, trust)
    assert Auth(dkim="fail") == auth(changed, Trust(keys=keys))


def test_a_mail_from_two_people_is_aligned_with_neither(rsa, keys) -> None:
    raw = MAIL.replace(b"<ada@bank.example>", b"<ada@bank.example>, eve@evil.example")

    assert Auth(dkim="pass", aligned=False) == auth(signed(rsa, raw), Trust(keys=keys))


@pytest.mark.parametrize(
    "text",
    [
        "mail._domainkey.bank.example v=DKIM1; k=rsa; p=AB",
        'Mail._domainkey.bank.example. 300 IN TXT "v=DKIM1; k=rsa; " "p=AB"',
        '# ours\n\nmail._domainkey.bank.example IN TXT (\n "v=DKIM1; k=rsa;"\n " p=AB" ) ; x\n',
    ],
)
def test_keys_are_parsed_from_dns_records(text: str) -> None:
    assert {NAME: "v=DKIM1; k=rsa; p=AB"} == read_keys(text)


@pytest.mark.parametrize(
    "text", ["hello", "mail.bank.example p=AB", f"{NAME} v=DKIM1", f"{NAME} ("]
)
def test_a_line_that_is_no_key_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="line 2 must be like"):
        read_keys(f"# keys\n{text}")
