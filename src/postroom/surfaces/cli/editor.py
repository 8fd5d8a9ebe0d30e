"""Writing a mail in the editor of the terminal, and keeping its text if it cannot be sent."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from postroom.calls.operation import Operation
from postroom.config.loading import preference
from postroom.errors import InvalidInput
from postroom.surfaces.cli.backends import Backend, Body, with_whole_ids
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import without_controls

COMMANDS = {"send_message": "send", "create_draft": "draft create"}
"""Operations whose mail has a head to fill in."""

REPLY = "reply_to_message"
_HEAD = ("to", "cc", "bcc", "subject")
_CUT = "# ------ postroom: this line and what follows it are left out ------"
_HOW = f"{_CUT}\n# Write the text above. Nothing happens if it is empty or unchanged.\n"
_EDITORS = ("editor", "vi", "nano")
_QUOTED_CHARS = 20_000


def wants_editor(
    session: Session, operation: Operation[Any, Any], arguments: dict[str, Any]
) -> bool:
    """Whether a person at a terminal must write the text of a mail."""
    is_composing = operation.name in COMMANDS or operation.name == REPLY
    has_text = "body_text" in arguments or "body_html" in arguments
    is_person = sys.stdin.isatty() and sys.stdout.isatty() and not session.as_json
    return is_composing and not has_text and is_person


def write(
    session: Session, operation: Operation[Any, Any], arguments: dict[str, Any]
) -> dict[str, Any]:
    """The arguments with what was written in the editor.

    Raises:
        InvalidInput: there is no editor, or nothing was written.
    """
    editor = _editor()
    answered = arguments.get("message_id") or arguments.get("in_reply_to")
    quoted = session.perform(lambda at: _original(at, str(answered))) if answered else ""
    head = () if operation.name == REPLY else _HEAD
    template = _template(arguments, head, quoted)
    text = _edited(editor, template)
    if text == template:
        raise InvalidInput("the file was not changed; nothing was done")
    found, body = _parsed(text, head)
    if not body:
        raise InvalidInput("the text is empty; nothing was done")
    # An empty header removes the value of an option.
    others = {name: value for name, value in arguments.items() if name not in head}
    return {**others, **found, "body_text": body}


@contextmanager
def keep_text_on_failure(
    session: Session, operation: Operation[Any, Any], arguments: dict[str, Any]
) -> Iterator[Callable[[], None]]:
    """Keep the written text in a file, unless the block calls the function that it gets."""
    is_done = False

    def done() -> None:
        nonlocal is_done
        is_done = True

    try:
        yield done
    finally:
        if not is_done:
            path = _file(arguments["body_text"])
            print(f"your text is kept in {path}; try again with:", file=sys.stderr)
            print(f"  {_retry_command(session, operation, arguments, path)}", file=sys.stderr)


def _retry_command(
    session: Session, operation: Operation[Any, Any], arguments: dict[str, Any], path: Path
) -> str:
    """The command that does the same with the kept text."""
    words = ["postroom", *COMMANDS.get(operation.name, "message reply").split()]
    for name, value in arguments.items():
        if name in ("body_text", "attachments") or value is False:
            continue
        option = session.options.get(name, f"--{name}")
        for one in value if isinstance(value, list) else [value]:
            words += [option] if one is True else [option, str(one)]
    return without_controls(shlex.join([*words, "--text-file", str(path)]))


async def _original(backend: Backend, message_id: str) -> str:
    """The mail that is answered, as comment lines."""
    from postroom.operations.mail.messages import get_message

    asked = await with_whole_ids(backend, {"message_id": message_id})
    if not asked["message_id"].startswith("msg_"):
        return ""
    mail: Body = await backend.body(get_message, asked)
    sender = f"{mail['from_name']} <{mail['from_address']}>".strip()
    lines = without_controls(mail["text"])[:_QUOTED_CHARS].rstrip().split("\n")
    return "\n".join(
        [f"#\n# {sender}: {without_controls(mail['subject'])}", *(f"# > {x}" for x in lines)]
    )


def _template(arguments: dict[str, Any], head: tuple[str, ...], quoted: str) -> str:
    values = {name: arguments.get(name, "") for name in head}
    lines = [
        f"{name.capitalize()}: {', '.join(v) if isinstance(v, list) else v}".rstrip()
        for name, v in values.items()
    ]
    return "\n".join([*lines, *([""] if head else []), "", "", _HOW + quoted]) + "\n"


def _parsed(text: str, head: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """The fields of the head, and the text. Raises InvalidInput."""
    text = text.partition(_CUT)[0]
    if not head:
        return {}, text.strip("\n").rstrip()
    first, _, body = text.partition("\n\n")
    found: dict[str, Any] = {}
    for line in first.strip("\n").split("\n"):
        match = re.fullmatch(r"(\w+):\s*(.*?)\s*", line)
        if match is None or match[1].lower() not in head:
            path = _file(text)
            raise InvalidInput(
                f"{line!r} is not a header line (To, Cc, Bcc, Subject); leave an empty line "
                f"before the text; what you wrote is kept in {path}"
            )
        name, value = match[1].lower(), match[2]
        if value:
            found[name] = value if name == "subject" else [*found.get(name, []), value]
    return found, body.strip("\n").rstrip()


def _editor() -> list[str]:
    """The command of the editor. Raises InvalidInput."""
    command = shlex.split(preference("VISUAL") or preference("EDITOR") or "")
    command = command or [found for name in _EDITORS if (found := shutil.which(name))][:1]
    if not command or shutil.which(command[0]) is None:
        missing = f"the editor {command[0]} is not installed" if command else "there is no editor"
        raise InvalidInput(f"{missing}; set EDITOR, or give the text with --text or --text-file")
    return command


def _edited(editor: list[str], template: str) -> str:
    """The text after a person has edited it. Raises InvalidInput."""
    path = _file(template)
    ended = subprocess.run([*editor, str(path)], check=False)
    try:
        text = path.read_text("utf-8", "replace")
    except FileNotFoundError:
        text = template
    if ended.returncode == 0 or text == template:
        path.unlink(missing_ok=True)
    if ended.returncode != 0:
        kept = "" if text == template else f"; what you wrote is kept in {path}"
        raise InvalidInput(f"the editor ended with {ended.returncode}, so nothing was done{kept}")
    return text


def _file(text: str) -> Path:
    """A new file that only its owner can read."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="postroom-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    return Path(file.name)
