"""Live accounts are configured by variables that contain the name of the account."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.config import ConfigError, read_settings
from postroom.config.loading import FOR_ALL, FOR_ONE
from postroom.model.imap import ImapSettings, ImapTimeouts

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
WORK = {
    "MAIL_IMAP_WORK_HOST": "imap.example.com",
    "MAIL_IMAP_WORK_USER": "ana",
    "MAIL_IMAP_WORK_PASS": "canary 0815",
}


def read(tmp_path: Path, **changes: str) -> ImapSettings:
    return read_settings({**WORK, **changes}, folder=tmp_path).settings.imap


def problems(tmp_path: Path, **changes: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, **changes)
    return {p["field"]: p["problem"] for p in error.value.details["problems"]}


def test_without_variables_there_are_no_accounts(tmp_path):
    settings = read_settings({}, folder=tmp_path).settings.imap

    assert ImapSettings() == settings
    assert ImapTimeouts(30, 15, 300) == settings.timeouts


def test_an_account_needs_three_variables_and_has_good_defaults(tmp_path):
    (account,) = read(tmp_path).accounts

    assert ("work", "imap.example.com", 993, "tls", "login") == (
        account.account_id,
        account.host,
        account.port,
        account.security,
        account.auth,
    )
    assert account.secure
    assert not account.is_unverified


def test_every_field_of_an_account_can_be_set(tmp_path):
    (tmp_path / "ca.pem").write_text("")
    settings = read(
        tmp_path,
        MAIL_IMAP_WORK_PORT="143",
        MAIL_IMAP_WORK_STARTTLS="true",
        MAIL_IMAP_WORK_AUTH="xoauth2",
        MAIL_IMAP_WORK_CA_FILE="ca.pem",
        MAIL_IMAP_WRITE_ENABLED="true",
        MAIL_IMAP_CONNECT_TIMEOUT_MS="1000",
        MAIL_IMAP_GREETING_TIMEOUT_MS="2500",
        MAIL_IMAP_SOCKET_TIMEOUT_MS="3600000",
    )

    (account,) = settings.accounts
    assert (143, "starttls", "xoauth2", tmp_path / "ca.pem") == (
        account.port,
        account.security,
        account.auth,
        account.ca_file,
    )
    assert settings.is_write_enabled
    assert ImapTimeouts(1, 2.5, 3600) == settings.timeouts


def test_a_name_of_several_words_is_one_account(tmp_path):
    names = {name.replace("WORK", "My_Old-1"): value for name, value in WORK.items()}

    (account,) = read_settings(names, folder=tmp_path).settings.imap.accounts

    assert "my_old-1" == account.account_id


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"MAIL_IMAP_X_PORT": "1"}, "MAIL_IMAP_X_HOST", "is required"),
        ({"MAIL_IMAP_X_PORT": "1"}, "MAIL_IMAP_X_PASS", "is required"),
        ({"MAIL_IMAP_WORK_HOST": ""}, "MAIL_IMAP_WORK_HOST", "is required"),
        ({"MAIL_IMAP_WORK_HOTS": "a"}, "MAIL_IMAP_WORK_HOTS", "MAIL_IMAP_WORK_HOST?"),
        ({"MAIL_IMAP_WRITE_ENABLE": "1"}, "MAIL_IMAP_WRITE_ENABLE", "MAIL_IMAP_WRITE_ENABLED?"),
        ({"MAIL_IMAP_HOST": "a"}, "MAIL_IMAP_HOST", "unknown setting"),
        ({"MAIL_IMAP_WORK_PORT": "0"}, "MAIL_IMAP_WORK_PORT", "from 1 to 65535"),
        ({"MAIL_IMAP_WORK_PORT": "x"}, "MAIL_IMAP_WORK_PORT", "from 1 to 65535"),
        ({"MAIL_IMAP_WORK_SECURE": "maybe"}, "MAIL_IMAP_WORK_SECURE", "true or false"),
        ({"MAIL_IMAP_WORK_SECURE": "false"}, "MAIL_IMAP_WORK_SECURE", "unencrypted"),
        ({"MAIL_IMAP_WORK_AUTH": "kerberos"}, "MAIL_IMAP_WORK_AUTH", "login or xoauth2"),
        ({"MAIL_IMAP_WORK_CA_FILE": "none.pem"}, "MAIL_IMAP_WORK_CA_FILE", "no such file"),
        ({"MAIL_IMAP_WORK_INSECURE": "true"}, "MAIL_IMAP_WORK_INSECURE", "only with a host on"),
        ({"MAIL_IMAP_WORK_USER": "a\nb"}, "MAIL_IMAP_WORK_USER", "must be text"),
        ({"MAIL_IMAP_CONNECT_TIMEOUT_MS": "0"}, "MAIL_IMAP_CONNECT_TIMEOUT_MS", "from 1 to"),
        ({"MAIL_IMAP_SOCKET_TIMEOUT_MS": "3600001"}, "MAIL_IMAP_SOCKET_TIMEOUT_MS", "3600000"),
        ({"MAIL_IMAP_Work_HOST": "b.example"}, "MAIL_IMAP_Work_HOST", "set twice"),
    ],
)
def test_an_invalid_variable_is_named_and_explained(tmp_path, changes, field, said):
    assert said in problems(tmp_path, **changes)[field]


def test_all_problems_are_reported_at_once(tmp_path):
    found = problems(tmp_path, MAIL_IMAP_WORK_PORT="x", MAIL_IMAP_A_HOST="b", POSTROOM_PORT="99999")

    assert {
        "MAIL_IMAP_WORK_PORT",
        "MAIL_IMAP_A_USER",
        "MAIL_IMAP_A_PASS",
        "POSTROOM_PORT",
    } == found.keys()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_on_loopback_tls_may_be_left_out_or_unverified(tmp_path, host):
    insecure = {"MAIL_IMAP_WORK_HOST": host, "MAIL_IMAP_WORK_INSECURE": "true"}

    (clear,) = read(tmp_path, **insecure, MAIL_IMAP_WORK_SECURE="false").accounts
    (unverified,) = read(tmp_path, **insecure, MAIL_IMAP_WORK_STARTTLS="true").accounts

    assert ("none", False) == (clear.security, clear.secure)
    assert ("starttls", True) == (unverified.security, unverified.is_unverified)


def test_the_password_is_shown_nowhere(tmp_path):
    configuration = read_settings(WORK, folder=tmp_path)

    shown = {v.setting.variable: v.masked_value for v in configuration.values}
    assert "********" == shown["MAIL_IMAP_WORK_PASS"]
    assert "imap.example.com" == shown["MAIL_IMAP_WORK_HOST"]
    assert "canary" not in repr(configuration.settings) + str(shown)


def test_the_documentation_lists_exactly_the_variables():
    row = re.compile(r"\| `MAIL_IMAP_(<ACCOUNT>_)?(\w+)` \| (.+?) \| (.+?) \| (.+?) \|\n")

    documented = row.findall(DOCS.read_text())

    rows = [("<ACCOUNT>_", r) for r in FOR_ONE] + [("", r) for r in FOR_ALL]
    assert [
        (prefix, r.name.upper(), r.reader.accepts, r.default or "none", r.summary)
        for prefix, r in rows
    ] == documented
