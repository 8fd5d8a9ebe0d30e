"""Text of servers, without the password that some repeat."""

from __future__ import annotations

import pytest

from postroom.model.imap import ImapAccount
from postroom.providers.imap.errors import Disconnected, Refused, TimedOut, mail_error
from postroom.providers.server_text import without_secret


def account(secret: str) -> ImapAccount:
    return ImapAccount("work", "mail.example.com", "me", secret)


@pytest.mark.parametrize("secret", ["a", "e", "the", "login", "12345"])
def test_a_short_password_changes_no_text(secret: str) -> None:
    said = f"no such login: {secret}, the end"

    told = [
        str(mail_error(fault, account(secret)))
        for fault in (Refused("SELECT", "NO", "", said), Disconnected(said), TimedOut("connect"))
    ]

    assert "" == without_secret(said, secret)
    assert "work: the server refused SELECT: NO" == told[0]
    assert "work: mail.example.com: its answer is not shown; try again" == told[1]
    assert "work: mail.example.com did not answer (connect); try again later" == told[2]


def test_a_longer_password_is_replaced_in_the_text() -> None:
    fault = Refused("SELECT", "NO", "", "hunter22 is wrong")

    assert "work: the server refused SELECT: ******** is wrong" == str(
        mail_error(fault, account("hunter22"))
    )


def test_without_a_password_nothing_is_replaced() -> None:
    assert "as it is" == without_secret("as it is", None)
