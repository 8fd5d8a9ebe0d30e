"""What a page of the table is: what a GET shows, what a POST does, and the request of a person."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from postroom.app import App
from postroom.calls.authentication import SignedIn
from postroom.calls.context import RequestContext
from postroom.calls.operation import Operation, call
from postroom.errors import MailError, Unauthenticated
from postroom.mail.mime.forms import FormFile
from postroom.model.key import Scope
from postroom.model.mail.message import Download

T = TypeVar("T")
_ADVICE = re.compile(r"; [a-z]+(?:_[a-z]+)+ [^;]*")
"""What an error says of another operation, such as `; list_rules shows the existing rules`."""
_FIELD = re.compile(r"(?:^|(?<=; ))([a-z]+(?:_[a-z]+)*)(?:\[\d+\])?(?=: )")
_ARGUMENT = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
_LABELS = {
    "account_id": "Short name",
    "body_html": "HTML",
    "body_text": "Text",
    "expires_at": "Expires",
    "host": "IMAP server",
    "inbox_id": "Inbox",
    "rule_yaml": "Rule",
    "scopes": "Permissions",
    "send_at": "Time",
    "smtp_host": "SMTP server",
    "url": "URL",
}


def with_labels(error: str) -> str:
    """The problems of a form with the labels of its fields in place of arguments."""
    named = _FIELD.sub(lambda at: _LABELS.get(at[1], at[1].replace("_", " ").capitalize()), error)
    return _ARGUMENT.sub(lambda found: _LABELS.get(found[0], found[0]), named)


class SignInThrottle(Protocol):
    """Looks up the secret of a sign-in, and delays guesses."""

    async def __call__(self, secret: str, look_up: Callable[[], Awaitable[T]]) -> T:
        """Raises Unauthenticated, RateLimited."""


ToolText = Callable[[RequestContext, str, Mapping[str, Any]], Awaitable[str]]
"""Calls a tool by its name as an agent does, and gives the text that the agent reads."""


@dataclass(frozen=True, slots=True)
class FormData:
    """What a form sent: its fields in order, and its files."""

    fields: Sequence[tuple[str, str]] = ()
    files: Sequence[FormFile] = ()

    def all(self, name: str) -> list[str]:
        """The values of a field that a form may have several times."""
        return [value for given, value in self.fields if given == name]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of a person: who they are, and what they gave in path, query and form."""

    app: App
    signed_in: SignedIn | None
    throttle: SignInThrottle
    user_agent: str
    tool_text: ToolText
    secret: str = field(default="", repr=False)
    """The secret of the session that the browser presents, valid or not."""
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    posted: FormData = FormData()
    base_url: str = ""
    """The address of this server as programs elsewhere reach it, without a slash at its end."""

    @property
    def form(self) -> Mapping[str, str]:
        """The fields of a form that it has once."""
        return dict(self.posted.fields)

    @property
    def cursor(self) -> dict[str, str]:
        """Where a list continues, as an argument of its operation; empty at its beginning."""
        return {"cursor": self.query["cursor"]} if self.query.get("cursor") else {}

    @property
    def person(self) -> SignedIn:
        """The person who is signed in. Raises Unauthenticated."""
        if self.signed_in is None:
            raise Unauthenticated("you are signed out; sign in to see this page")
        return self.signed_in

    @property
    def ctx(self) -> RequestContext:
        return self.app.context(self.person.caller, "web")

    def may(self, scope: Scope) -> bool:
        """Whether the person has a scope."""
        return self.signed_in is not None and scope in self.signed_in.caller.scopes

    async def call(self, operation: Operation[Any, T], **arguments: Any) -> T:
        """Call an operation as this person; an error does not name others: pages have links."""
        try:
            return await call(self.ctx, operation, arguments)
        except MailError as error:
            error.args = (_ADVICE.sub("", str(error)), *error.args[1:])
            raise


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where the browser goes after a form, and the notice shown there: a name in `NOTICES`.

    `session` is the secret of a new session, or empty if the session has ended.
    """

    to: str
    notice: str = ""
    session: str | None = None


Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FormResult:
    """The response to a form that is not redirected: a secret that is shown once, a test."""

    template: str
    values: Values


async def no_values(_request: PageRequest) -> Values:
    return {}


@dataclass(frozen=True, slots=True)
class Page:
    """A page: what `values` returns is given to its template. It changes nothing."""

    path: str
    template: str
    values: Callable[[PageRequest], Awaitable[Values]] = no_values
    is_public: bool = False
    scope: Scope | None = None
    """The scope without which the form on this page is of no use."""


@dataclass(frozen=True, slots=True)
class FramedPage:
    """A document in HTML, and what its content may do (Content-Security-Policy)."""

    html: bytes
    policy: str


@dataclass(frozen=True, slots=True)
class Document:
    """A document that a page shows in a frame, with a separate policy."""

    path: str
    content: Callable[[PageRequest], Awaitable[FramedPage]]


@dataclass(frozen=True, slots=True)
class File:
    """A file to save: the operation gives it by the path."""

    path: str
    operation: Operation[Any, Download]


@dataclass(frozen=True, slots=True)
class Form:
    """A form that is posted: an operation with the ids of the path, or a function.

    If it refuses, `error_page` is shown with the reason. After an operation, the browser is
    redirected to `redirect_to`, or to this page as well; a function says where, or shows a page.
    """

    path: str
    action: Operation[Any, Any] | Callable[[PageRequest], Awaitable[Redirect | FormResult]]
    error_page: Page
    redirect_to: str = ""
    notice: str = ""
    is_public: bool = False

    async def submit(self, request: PageRequest) -> Redirect | FormResult:
        """Do what the form asks for. Raises MailError."""
        if not isinstance(self.action, Operation):
            return await self.action(request)
        await request.call(self.action, **request.path)
        to = self.redirect_to or self.error_page.path.format(**request.path)
        return Redirect(to, self.notice)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation, for people with a scope; the less frequent ones are in a menu."""

    title: str
    path: str
    scope: Scope | None = Scope.READ
    menu: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A subject: its rows in the table of pages, the notices after its forms, and its links.

    Only these notices are shown after a form, by their names in the query, so that a link cannot
    put its own text on a page.
    """

    links: tuple[Link, ...] = ()
    pages: tuple[Page, ...] = ()
    documents: tuple[Document, ...] = ()
    files: tuple[File, ...] = ()
    forms: tuple[Form, ...] = ()
    notices: Mapping[str, str] = field(default_factory=dict)
