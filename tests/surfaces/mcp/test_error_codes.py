"""Every error has a code of contract 001 and one of contract 002."""

from __future__ import annotations

import pytest

from postroom import errors
from postroom.errors import MailError, NotFound, ProviderTimeout, RateLimited, StorageFull
from postroom.surfaces.mcp import imap_tools
from postroom.surfaces.mcp.tool import CODES, explain_error


def kinds(error: type[MailError] = MailError) -> set[str]:
    return {error.code}.union(*(kinds(child) for child in error.__subclasses__()))


def test_every_kind_of_error_has_a_code():
    ours = {
        e.code for e in vars(errors).values() if isinstance(e, type) and issubclass(e, MailError)
    }

    assert ours == set(CODES) == set(imap_tools.CODES)
    assert kinds() >= ours


def test_an_error_has_its_code_message_and_kind():
    explained = explain_error(NotFound("no message msg_1", message_id="msg_1"))

    assert {
        "error": {
            "code": "NOT_FOUND",
            "message": "no message msg_1",
            "details": {"kind": "not_found", "message_id": "msg_1"},
        }
    } == explained


def test_a_rate_limit_error_says_when_to_retry():
    error = explain_error(RateLimited("too fast", retry_after=7))["error"]

    assert ("RATE_LIMIT_EXCEEDED", 7) == (error["code"], error["retry_after"])


def test_a_provider_error_has_the_providers_message():
    error = explain_error(ProviderTimeout("no answer", host="imap.example.com"))["error"]

    assert "PROVIDER_ERROR" == error["code"]
    assert {"host": "imap.example.com"} == error["provider_error"]


@pytest.mark.parametrize(("error", "again"), [(StorageFull("full"), True), (NotFound("no"), None)])
def test_a_temporary_error_says_so(error, again):
    assert again == explain_error(error)["error"]["details"].get("retryable")


def test_live_mail_has_the_codes_and_the_body_of_its_own_contract():
    of_contract = {"invalid_input", "auth_failed", "not_found", "timeout", "conflict", "internal"}

    explained = imap_tools.explain_error(RateLimited("too fast", retry_after=7))

    assert of_contract == set(imap_tools.CODES.values())
    details = {"kind": "rate_limited", "retry_after": 7}
    assert {"code": "internal", "message": "too fast", "details": details} == explained["error"]
