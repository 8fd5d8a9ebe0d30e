"""Shell completion of keywords, addresses, labels, mailboxes and recent ids."""

from __future__ import annotations

import subprocess

import pytest

from postroom.surfaces.cli.backends import LISTS
from postroom.surfaces.cli.command_table import COMMANDS, OperationCommand, operation_at
from postroom.surfaces.cli.options import SOURCES, fields_of
from tests.mails import mail
from tests.servers.postroom import environment, write_program


@pytest.fixture
def complete(forked):
    """The completions of an incomplete line."""

    def run(line: str, shell: str = "bash", **env: str) -> list[str]:
        words = line.split()
        at = len(words) - (not line.endswith(" "))
        done = forked(
            COMP_WORDS=line, COMP_CWORD=str(at), _POSTROOM_COMPLETE=f"{shell}_complete", **env
        )
        assert (0, "") == (done.code, done.err)
        return [line for line in done.out.splitlines() if line]

    return run


def values(lines: list[str]) -> list[str]:
    return [line.partition(",")[2] for line in lines]


def test_keywords_are_completed(complete):
    assert ["newest", "oldest"] == values(complete("postroom search --sort "))
    assert ["words"] == values(complete("postroom search --mode w"))
    assert ["flagged"] == values(complete("postroom message flag x fl"))
    assert ["file"] == [line.partition(",")[0] for line in complete("postroom send --attach ")]


def test_stored_values_are_completed(complete, postroom, receive, inbox):
    files = [("a.pdf", "application/pdf", b"%PDF")]
    got = receive(mail("Tea\ttime \x1b[31m", attachments=files))
    message_id, thread_id = got["message_id"], got["thread_id"]
    postroom("message", "label", "Work", message_id)
    postroom("message", "move", message_id, "Projects")
    found = {
        "postroom message list ": "bo@postroom.localhost",
        "postroom search --inbox-id b": "bo@postroom.localhost",
        "postroom import x --inbox ": "bo@postroom.localhost",
        "postroom message show ": message_id,
        f"postroom message show {message_id[:8]}": message_id,
        f"postroom message reply --message-id {message_id[4:8]}": message_id,
        f"postroom message move {message_id} P": "Projects",
        "postroom search --mailbox P": "Projects",
        "postroom message label ": "Work",
        "postroom message label Work ": message_id,
        "postroom search --label W": "Work",
        "postroom thread show ": thread_id,
    }

    assert found == {line: (values(complete(line)) or [""])[0] for line in found}
    assert 1 == len(complete("postroom attachment save att_"))


def test_ids_have_descriptions_in_shells_that_show_them(complete, receive):
    message_id = receive(mail("Tea \x1b[31m time", sender="Ana <ana@example.com>"))["message_id"]

    offered = complete("postroom message show ", "zsh")

    assert ["plain", message_id] == offered[:2]
    assert offered[2].startswith("Ana · Tea")
    assert "\x1b" not in "".join(offered)


def test_completion_without_a_store_prints_and_creates_nothing(complete, tmp_path):
    assert [] == complete("postroom message show ")
    assert [] == complete(f"postroom --data {tmp_path}/none message show ")
    assert [] == complete("postroom --url http://127.0.0.1:1 message show ")
    assert [] == complete("postroom message show ", POSTROOM_PORT="nonsense")
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "data").exists()


def test_bash_completes_an_id(data, receive, tmp_path):
    message_id = receive(mail())["message_id"]
    write_program(tmp_path)
    script = (
        'eval "$(postroom completion bash)"; COMP_WORDS=(postroom message show ""); COMP_CWORD=3; '
        '_postroom_completion postroom; echo "${COMPREPLY[@]}"'
    )
    env = environment(data)

    done = subprocess.run(
        ["bash", "-c", script],
        env={**env, "PATH": f"{tmp_path}:{env['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert message_id in done.stdout


def test_every_argument_that_takes_a_stored_value_is_completed():
    names = {
        field.name
        for row in COMMANDS
        if isinstance(row, OperationCommand)
        for field in fields_of(operation_at(row.operation).request, row.plain)
    }
    ids = {name for name in names if name.endswith(("_id", "_ids"))}

    assert {"client_id", "delivery_id", "plan_id"} >= ids - SOURCES.keys()
    assert {"mailbox", "label", "labels", "destination", "inboxes"} <= SOURCES.keys()
    for place in [*(source[0] for source in SOURCES.values()), *LISTS.values()]:
        assert operation_at(place)
