"""The form of the editor as sent by a browser without JavaScript."""

from __future__ import annotations

from html.parser import HTMLParser

from tests.surfaces.web.conftest import WebUser, words


class Editor(HTMLParser):
    """Parses the action and the fields of the editor's form."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.action, self.fields = "", dict[str, str]()
        self._is_inside, self._text, self._select = False, "", ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_inside = given.get("id") == "editor"
            self.action = given["action"] if self._is_inside else self.action
        if not self._is_inside or (tag != "option" and not given.get("name")):
            return
        if tag == "textarea":
            self._text, self.fields[given["name"]] = given["name"], ""
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and ("selected" in given or self._select not in self.fields):
            self.fields[self._select] = given["value"]
        elif tag == "input" and (
            given.get("type") not in ("file", "checkbox") or "checked" in given
        ):
            self.fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.fields[self._text] = self.fields[self._text].removeprefix("\n")
        self._text = "" if tag == "textarea" else self._text
        self._is_inside = self._is_inside and tag != "form"

    def handle_data(self, data: str) -> None:
        if self._text:
            self.fields[self._text] += data


async def write(
    person: WebUser,
    path: str = "/compose",
    *,
    files: tuple[tuple[str, bytes], ...] = (),
    status: int = 303,
    **typed: str,
) -> str:
    """Open an editor, fill it in, and press a button; returns the redirect, or the page."""
    editor = Editor(await person.read(path))
    parts = [("files", (name, content, "text/plain")) for name, content in files]
    response = await person.http.post(
        editor.action, data={**editor.fields, **typed}, files=parts or [("files", ("", b""))]
    )
    assert status == response.status_code, words(response.text)
    return response.headers["location"] if status == 303 else response.text
