"""Mail of Microsoft Graph, implemented in memory from its public documentation.

There is no emulator of it. It follows
https://learn.microsoft.com/en-us/graph/api/resources/message,
https://learn.microsoft.com/en-us/graph/api/message-delta,
https://learn.microsoft.com/en-us/graph/api/mailfolder-list-messages,
https://learn.microsoft.com/en-us/graph/api/mailfolder-post-messages,
https://learn.microsoft.com/en-us/graph/api/mailfolder-post-childfolders,
https://learn.microsoft.com/en-us/graph/api/resources/singlevaluelegacyextendedproperty,
https://learn.microsoft.com/en-us/graph/api/singlevaluelegacyextendedproperty-get,
https://learn.microsoft.com/en-us/office/client-developer/outlook/mapi/pidtagmessagesize-canonical-property,
https://learn.microsoft.com/en-us/graph/api/message-permanentdelete,
https://learn.microsoft.com/en-us/graph/outlook-immutable-id,
https://learn.microsoft.com/en-us/graph/outlook-large-attachments and
https://learn.microsoft.com/en-us/graph/throttling; it is not Microsoft's own.
"""

from __future__ import annotations

import itertools
import re
import threading
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Self
from urllib.parse import urlencode

from tests.servers.web import HttpRequest, HttpResponse, WebServer

TOKEN = "graph-token"
MAX_BYTES = 4 * 2**20
WELL_KNOWN = ("inbox", "sentitems", "drafts", "archive", "junkemail", "deleteditems")
_UNSENT = 8
_NAMES = ("Inbox", "Sent Items", "Drafts", "Archive", "Junk Email", "Deleted Items")


@dataclass
class Mail:
    """A message in a folder."""

    id: str
    folder: str
    raw: bytes
    received: datetime
    is_read: bool = False
    flag: str = "notFlagged"
    categories: list[str] = field(default_factory=list)
    is_draft: bool = False

    def shown(self, expand: str = "") -> dict[str, Any]:
        """The message as JSON; its size is a property that must be requested."""
        size = {"id": "Integer 0xe08", "value": str(len(self.raw))}
        has_size = expand == "singleValueExtendedProperties($filter=id eq 'Integer 0x0E08')"
        return {
            **({"singleValueExtendedProperties": [size]} if has_size else {}),
            "id": self.id,
            "isRead": self.is_read,
            "isDraft": self.is_draft,
            "flag": {"flagStatus": self.flag},
            "categories": list(self.categories),
            "receivedDateTime": self.received.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "parentFolderId": self.folder,
        }


class Graph:
    """A mailbox of one user."""

    def __init__(self, address: str = "alice@example.com") -> None:
        self.address = address
        self.owner = "4f5a2f0c-92a1-41de-8a8c-11c22a6b8a11"
        self.token = TOKEN
        self.mails: dict[str, Mail] = {}
        self.folders = {f"f-{name}": _NAMES[i] for i, name in enumerate(WELL_KNOWN)}
        self.parents: dict[str, str] = {}
        """The parent of each nested folder; other folders are at the root."""
        self.sent: list[bytes] = []
        self.busy: list[int] = []
        """Seconds to answer 429 with, one for each of the next requests."""
        self.forgets_deltas = False
        self.may_delete = True
        """Whether this cloud supports permanent deletion; some do not."""
        self.full = False
        """Whether the mailbox is full."""
        self.uploads: dict[str, tuple[str, dict[str, Any], bytearray]] = {}
        self._numbers = itertools.count(1)
        self._log: list[tuple[str, str]] = []
        self._lock = threading.RLock()
        self.web = WebServer(self._answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.web.__exit__()

    @property
    def url(self) -> str:
        return self.web.url + "/v1.0"

    @property
    def requests(self) -> list[HttpRequest]:
        return self.web.requests

    # Changes by other clients.

    def deliver(self, raw: bytes, folder: str = "f-inbox", **state: Any) -> Mail:
        with self._lock:
            received = datetime.now(UTC)
            mail = Mail(f"AAk-{next(self._numbers)}", folder, raw, received, **state)
            self.mails[mail.id] = mail
            self._log.append((folder, mail.id))
            return mail

    def touch(self, mail: Mail) -> None:
        with self._lock:
            self._log.append((mail.folder, mail.id))

    def remove(self, mail: Mail) -> None:
        with self._lock:
            del self.mails[mail.id]
            self._log.append((mail.folder, mail.id))

    def move(self, mail: Mail, folder: str) -> None:
        with self._lock:
            self._log.append((mail.folder, mail.id))
            mail.folder = folder
            self._log.append((folder, mail.id))

    # HTTP.

    def _answer(self, request: HttpRequest) -> HttpResponse:
        with self._lock:
            if request.path.startswith("/upload/"):
                return self._upload(request)
            if request.headers.get("authorization") != f"Bearer {self.token}":
                return _error(401, "InvalidAuthenticationToken")
            if self.busy:
                wait = self.busy.pop(0)
                return HttpResponse(
                    429, {"error": {"code": "TooManyRequests"}}, {"Retry-After": str(wait)}
                )
            if len(request.body) > MAX_BYTES:
                return _error(413, "RequestEntityTooLarge")
            for method, pattern, handle in _ROUTES:
                found = re.fullmatch(pattern, request.path.removeprefix("/v1.0"))
                if found and method == request.method:
                    result: HttpResponse = handle(self, request, *found.groups())
                    return result
        return _error(404, "ResourceNotFound")

    def _me(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse(body={"id": self.owner, "mail": self.address, "displayName": "Alice"})

    def _folder(self, _: HttpRequest, name: str) -> HttpResponse:
        key = f"f-{name}" if name in WELL_KNOWN else name
        if key not in self.folders:
            return _error(404, "ErrorItemNotFound")
        return HttpResponse(body={"id": key, "displayName": self.folders[key]})

    def _folders(self, _: HttpRequest, parent: str = "root") -> HttpResponse:
        """The folders directly in another one, or in none."""
        rows = [
            {
                "id": key,
                "displayName": self.folders[key],
                "parentFolderId": parent,
                "childFolderCount": len(self._children(key)),
            }
            for key in self._children(parent)
        ]
        return HttpResponse(body={"value": rows})

    def _children(self, parent: str) -> list[str]:
        return [key for key in self.folders if self.parents.get(key, "root") == parent]

    def _create_folder(self, request: HttpRequest, parent: str = "root") -> HttpResponse:
        name = request.json()["displayName"]
        if name in [self.folders[key] for key in self._children(parent)]:
            return _error(409, "ErrorFolderExists")
        key = f"f-{next(self._numbers)}"
        self.folders[key], self.parents[key] = name, parent
        return HttpResponse(201, {"id": key, "displayName": name, "parentFolderId": parent})

    def _delta(self, request: HttpRequest, folder: str) -> HttpResponse:
        size = re.search(r"odata\.maxpagesize=(\d+)", request.headers.get("prefer", ""))
        most = int(size[1]) if size else 10
        if 'IdType="ImmutableId"' not in request.headers.get("prefer", ""):
            return _error(400, "TestNeedsImmutableIds")
        base = f"{self.url}/me/mailFolders/{folder}/messages/delta"
        expand = request.query.get("$expand", "")
        kept = "&" + urlencode({"$expand": expand}) if expand else ""
        if "$deltatoken" in request.query:
            if self.forgets_deltas:
                return _error(410, "syncStateNotFound")
            since = int(request.query["$deltatoken"])
            changed = dict.fromkeys(key for at, key in self._log[since:] if at == folder)
            rows = [self._row(folder, key, expand) for key in changed]
            link = f"{base}?$deltatoken={len(self._log)}{kept}"
            return HttpResponse(body={"value": rows, "@odata.deltaLink": link})
        skip, _, mark = request.query.get("$skiptoken", "0").partition("-")
        mark = mark or str(len(self._log))
        mails = sorted(
            (m for m in self.mails.values() if m.folder == folder),
            key=lambda m: (m.received, int(m.id.rpartition("-")[2])),
            reverse=True,
        )
        start = int(skip)
        page = [m.shown(expand) for m in mails[start : start + most]]
        if start + most < len(mails):
            link = f"{base}?$skiptoken={start + most}-{mark}{kept}"
            return HttpResponse(body={"value": page, "@odata.nextLink": link})
        self.forgets_deltas = False
        return HttpResponse(
            body={"value": page, "@odata.deltaLink": f"{base}?$deltatoken={mark}{kept}"}
        )

    def _list(self, request: HttpRequest, folder: str) -> HttpResponse:
        if 'IdType="ImmutableId"' not in request.headers.get("prefer", ""):
            return _error(400, "TestNeedsImmutableIds")
        folder = f"f-{folder}" if folder in WELL_KNOWN else folder
        asked_for = request.query.get("$filter", "")
        since = re.fullmatch(r"receivedDateTime ge (\S+Z)", asked_for)
        named = re.fullmatch(r"internetMessageId eq '((?:[^']|'')*)'", asked_for)
        if asked_for and since is None and named is None:
            return _error(400, "ErrorInvalidUrlQueryFilter")
        mails = [
            mail.shown(request.query.get("$expand", ""))
            for mail in reversed(self.mails.values())
            if mail.folder == folder
            and (not since or mail.shown()["receivedDateTime"] >= since[1])
            and (not named or _message_id(mail.raw) == named[1].replace("''", "'"))
        ]
        start, size = int(request.query.get("$skip", 0)), int(request.query.get("$top", 10))
        body: dict[str, Any] = {"value": mails[start : start + size]}
        if start + size < len(mails):
            query = urlencode({**request.query, "$skip": start + size})
            body["@odata.nextLink"] = f"{self.url}/me/mailFolders/{folder}/messages?{query}"
        return HttpResponse(body=body)

    def _row(self, folder: str, key: str, expand: str) -> dict[str, Any]:
        mail = self.mails.get(key)
        if mail is None or mail.folder != folder:
            return {"id": key, "@removed": {"reason": "deleted" if mail is None else "changed"}}
        return mail.shown(expand)

    def _get(self, _: HttpRequest, key: str) -> HttpResponse:
        mail = self.mails.get(key)
        return HttpResponse(body=mail.shown()) if mail else _error(404, "ErrorItemNotFound")

    def _value(self, _: HttpRequest, key: str) -> HttpResponse:
        mail = self.mails.get(key)
        return HttpResponse(body=mail.raw) if mail else _error(404, "ErrorItemNotFound")

    def _patch(self, request: HttpRequest, key: str) -> HttpResponse:
        mail = self.mails.get(key)
        if mail is None:
            return _error(404, "ErrorItemNotFound")
        patch = request.json()
        mail.is_read = patch.get("isRead", mail.is_read)
        mail.flag = patch.get("flag", {}).get("flagStatus", mail.flag)
        mail.categories = patch.get("categories", mail.categories)
        self.touch(mail)
        return HttpResponse(body=mail.shown())

    def _move(self, request: HttpRequest, key: str) -> HttpResponse:
        mail = self.mails.get(key)
        if mail is None:
            return _error(404, "ErrorItemNotFound")
        self.move(mail, request.json()["destinationId"])
        return HttpResponse(201, mail.shown())

    def _delete(self, _: HttpRequest, key: str) -> HttpResponse:
        mail = self.mails.get(key)
        if mail is None:
            return _error(404, "ErrorItemNotFound")
        if mail.folder == "f-deleteditems":
            self.remove(mail)
        else:
            self.move(mail, "f-deleteditems")
        return HttpResponse(204)

    def _delete_for_good(self, _: HttpRequest, key: str) -> HttpResponse:
        if not self.may_delete:
            return _error(400, "BadRequest")
        mail = self.mails.get(key)
        if mail is None:
            return _error(404, "ErrorItemNotFound")
        self.remove(mail)
        return HttpResponse(204)

    def _send_mail(self, request: HttpRequest) -> HttpResponse:
        self._take(b64decode(request.body, validate=True))
        return HttpResponse(202)

    def _take(self, raw: bytes) -> None:
        self.sent.append(raw)
        self.deliver(_without_bcc(raw), "f-sentitems", is_read=True)

    def _create_message(self, request: HttpRequest) -> HttpResponse:
        mail = self.deliver(b64decode(request.body, validate=True), "f-drafts", is_draft=True)
        return HttpResponse(201, mail.shown())

    def _create_in(self, request: HttpRequest, folder: str) -> HttpResponse:
        """A message in a folder, from JSON: a draft, unless its flags say otherwise."""
        if self.full:
            return _error(507, "ErrorQuotaExceeded")
        given = request.json()
        properties = {p["id"]: p["value"] for p in given.get("singleValueExtendedProperties", [])}
        is_draft = bool(int(properties.get("Integer 0x0E07", _UNSENT)) & _UNSENT)
        is_read = bool(given.get("isRead"))
        mail = self.deliver(_mime(given, properties), folder, is_draft=is_draft, is_read=is_read)
        return HttpResponse(201, mail.shown())

    def _send_draft(self, _: HttpRequest, key: str) -> HttpResponse:
        mail = self.mails[key]
        self.remove(mail)
        self._take(mail.raw)
        return HttpResponse(202)

    def _session(self, request: HttpRequest, key: str) -> HttpResponse:
        number = str(next(self._numbers))
        self.uploads[number] = (key, request.json()["AttachmentItem"], bytearray())
        return HttpResponse(201, {"uploadUrl": f"{self.web.url}/upload/{number}"})

    def _upload(self, request: HttpRequest) -> HttpResponse:
        if "authorization" in request.headers or len(request.body) > MAX_BYTES:
            return _error(400, "InvalidRequest")
        key, item, content = self.uploads[request.path.rpartition("/")[2]]
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", request.headers["content-range"])
        if found is None or int(found[1]) != len(content) or int(found[3]) != item["size"]:
            return _error(416, "InvalidRange")
        content += request.body
        if len(content) < item["size"]:
            return HttpResponse(200, {"nextExpectedRanges": [f"{len(content)}-"]})
        mail = message_from_bytes(self.mails[key].raw, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        main, _, sub = item.get("contentType", "application/octet-stream").partition("/")
        mail.add_attachment(bytes(content), maintype=main, subtype=sub, filename=item["name"])
        self.mails[key].raw = mail.as_bytes()
        return HttpResponse(201)


def _mime(given: dict[str, Any], properties: dict[str, str]) -> bytes:
    """The mail that Exchange would create from a message given as JSON."""
    mail = EmailMessage()
    mail["Subject"] = given["subject"]
    mail["Message-ID"] = given["internetMessageId"]
    mail["From"] = given["from"]["emailAddress"]["address"]
    named = (("To", "toRecipients"), ("Cc", "ccRecipients"), ("Bcc", "bccRecipients"))
    for header, name in named:
        people = [one["emailAddress"]["address"] for one in given.get(name, [])]
        if people:
            mail[header] = ", ".join(people)
    for header, key in (("In-Reply-To", "String 0x1042"), ("References", "String 0x1039")):
        if key in properties:
            mail[header] = properties[key]
    body = given["body"]
    mail.set_content(body["content"], subtype="html" if body["contentType"] == "html" else "plain")
    for file in given.get("attachments", []):
        content, (main, _, sub) = (
            b64decode(file["contentBytes"]),
            file["contentType"].partition("/"),
        )
        mail.add_attachment(content, maintype=main, subtype=sub, filename=file["name"])
    return mail.as_bytes(policy=policy.SMTP)


def _message_id(raw: bytes) -> str:
    return str(message_from_bytes(raw)["Message-ID"] or "").strip()


def _without_bcc(raw: bytes) -> bytes:
    return re.sub(rb"(?im)\ABcc:.*\r?\n(?:[ \t].*\r?\n)*", b"", raw)


def _error(status: int, code: str) -> HttpResponse:
    return HttpResponse(status, {"error": {"code": code, "message": f"{code}."}})


_ID = r"([^/]+)"
_ROUTES: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/me", Graph._me),
    ("GET", "/me/mailFolders", Graph._folders),
    ("POST", "/me/mailFolders", Graph._create_folder),
    ("GET", f"/me/mailFolders/{_ID}", Graph._folder),
    ("GET", f"/me/mailFolders/{_ID}/childFolders", Graph._folders),
    ("POST", f"/me/mailFolders/{_ID}/childFolders", Graph._create_folder),
    ("GET", f"/me/mailFolders/{_ID}/messages", Graph._list),
    ("POST", f"/me/mailFolders/{_ID}/messages", Graph._create_in),
    ("GET", f"/me/mailFolders/{_ID}/messages/delta", Graph._delta),
    ("GET", f"/me/messages/{_ID}", Graph._get),
    ("GET", rf"/me/messages/{_ID}/\$value", Graph._value),
    ("PATCH", f"/me/messages/{_ID}", Graph._patch),
    ("POST", f"/me/messages/{_ID}/move", Graph._move),
    ("DELETE", f"/me/messages/{_ID}", Graph._delete),
    ("POST", f"/me/messages/{_ID}/permanentDelete", Graph._delete_for_good),
    ("POST", "/me/sendMail", Graph._send_mail),
    ("POST", "/me/messages", Graph._create_message),
    ("POST", f"/me/messages/{_ID}/send", Graph._send_draft),
    ("POST", f"/me/messages/{_ID}/attachments/createUploadSession", Graph._session),
)
