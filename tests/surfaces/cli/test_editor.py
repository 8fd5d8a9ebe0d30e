"""Without a text, a user at a terminal writes a mail in an editor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mails import mail
from tests.surfaces.cli.pseudo_terminal import on_a_terminal

HEAD = "To: ana@example.com\nSubject: Hi\n"


@pytest.fixture
def editor(tmp_path):
    """Creates an editor that inserts a text above the separator, and records its input."""

    def make(text: str, *, head: str | None = None, code: int = 0) -> tuple[str, Path]:
        given, script = tmp_path / "given", tmp_path / "editor.py"
        script.write_text(
            "import sys\n"
            "path = sys.argv[-1]\n"
            "found = open(path).read()\n"
            f"open({str(given)!r}, 'w').write(found)\n"
            "head, _, rest = found.partition('# ---')\n"
            f"head = head if {head!r} is None else {head!r} + '\\n'\n"
            f"new = head.rstrip('\\n') + '\\n\\n' + {text!r} + '# ---' + rest\n"
            f"if {text!r}: open(path, 'w').write(new)\n"
            f"sys.exit({code})\n"
        )
        return f"python3 {script}", given

    return make


def test_a_mail_is_written_with_its_head(data, postroom, inbox, editor):
    command, given = editor("Hello Ana,\n\nsee you.\n", head=HEAD)

    seen = on_a_terminal(data, "send", "--cc", "cy@example.com", EDITOR=command)

    assert "captured" in seen
    assert given.read_text().startswith("To:\nCc: cy@example.com\nBcc:\nSubject:\n\n")
    [row] = postroom("search", "--subject", "Hi", "-o", "json").json["results"]
    message = postroom("message", "show", row["id"], "-o", "json").json
    assert "Hello Ana,\n\nsee you." == message["text"]
    assert ["ana@example.com"] == message["to_addresses"]


def test_a_reply_shows_what_it_answers_and_sends_only_what_was_written(
    data, postroom, receive, editor
):
    message_id = receive(mail("Question", "How are you?\x1b[31m"))["message_id"]
    command, given = editor("Fine.\n")

    on_a_terminal(data, "message", "reply", message_id[4:12], VISUAL=command, EDITOR="false")

    assert "# > How are you?" in given.read_text()
    assert "\x1b" not in given.read_text()
    [row] = postroom("search", "--subject", "Re: Question", "-o", "json").json["results"]
    text = postroom("message", "show", row["id"], "-o", "json").json["text"]
    assert "Fine." in text
    assert "postroom: this line" not in text


def test_a_draft_is_written_as_well(data, postroom, inbox, editor):
    command, _ = editor("Later.\n", head=HEAD)

    on_a_terminal(data, "draft", "create", EDITOR=command)

    [draft] = postroom("draft", "list", "-o", "json").json["results"]
    assert ("Hi", "Later.") == (draft["subject"], draft["body_text"])


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("", 0, "the file was not changed"),
        (" \n\n", 0, "the text is empty"),
        ("Hello\n", 3, "the editor ended with 3"),
    ],
)
def test_nothing_is_sent_without_a_text(data, postroom, inbox, editor, text, code, told):
    command, _ = editor(text, head=HEAD, code=code)

    seen = on_a_terminal(data, "send", EDITOR=command, code=2)

    assert told in seen
    assert 0 == postroom("search", "--mailbox", "*", "-o", "json").json["total"]


def test_the_text_is_kept_if_the_mail_cannot_be_sent(data, postroom, inbox, editor):
    command, _ = editor("A long letter.\n", head="To: nobody\nSubject: It's me\n")

    seen = on_a_terminal(data, "send", EDITOR=command, code=2, TMPDIR=str(data.parent))

    kept = re.search(r"kept in (\S+\.txt)", seen)
    assert kept is not None
    assert "A long letter." == Path(kept[1]).read_text()
    assert 0o600 == Path(kept[1]).stat().st_mode & 0o777
    assert f"""postroom send --to nobody --subject 'It'"'"'s me' --text-file {kept[1]}""" in seen


def test_a_head_that_cannot_be_read_is_told_and_the_text_is_kept(data, inbox, editor):
    command, _ = editor("Hello.\n", head="Dear Ana,\nhow are you\n")

    seen = on_a_terminal(data, "send", EDITOR=command, code=2, TMPDIR=str(data.parent))

    assert "is not a header line" in seen
    assert "kept in" in seen


def test_without_an_editor_or_a_terminal_the_text_is_asked_for(data, forked, inbox):
    missing = on_a_terminal(data, "send", EDITOR="no-such-editor", code=2)
    piped = forked("send", "--to", "a@b.example", "--subject", "x", EDITOR="false")

    assert "the editor no-such-editor is not installed; set EDITOR" in missing
    assert (2, True) == (piped.code, "--text" in piped.err)
