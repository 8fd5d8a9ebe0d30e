"""Accounts: their state and progress, adding one, signing in again, syncing and removing."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode, urlsplit

from postroom.errors import (
    InvalidInput,
    MailError,
    ProviderAuthFailed,
    ProviderError,
    ProviderTimeout,
)
from postroom.model.account import TRAITS, UNUSED_REDIRECT, Account, StartedSignIn
from postroom.model.key import Scope
from postroom.operations.accounts import (
    add_account,
    check_account,
    get_account,
    list_accounts,
    log_in_account,
    remove_account,
    sync_account,
)
from postroom.operations.oauth_sign_in import finish_sign_in, start_sign_in
from postroom.surfaces.web.page import (
    Form,
    FormResult,
    Link,
    Page,
    PageRequest,
    Redirect,
    Section,
    Values,
)

_ROWS = 100
_COMMAND = re.compile(r"; run: postroom account login [\w.-]+$")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BY_CODE = ("gmail", "outlook")
_BACK = "/accounts/back"
"""Where the browser comes back to after a sign-in on this machine."""

STATES = {
    "new": ("waiting", "The first sync starts shortly."),
    "syncing": ("syncing", "Syncing, newest first. You can already search what has arrived."),
    "ready": ("up to date", ""),
    "failing": ("failing", "It is retried automatically; nothing is lost."),
    "needs_reauth": ("sign-in required", "Until then, new mail stays at the provider."),
}
"""The states of an account in words, and what happens meanwhile."""

PROVIDERS = {
    "imap": ("IMAP", "Any mail server, with a user name and a password."),
    "gmail": ("Gmail", "Sign in with Google in a browser."),
    "outlook": ("Outlook", "Microsoft 365 and Outlook.com. Sign in with a code."),
    "fastmail": ("Fastmail", "With an API token from its settings."),
}
SCOPES = {
    "read,draft,send": "Read, write drafts and send",
    "read,draft": "Read and write drafts",
    "read": "Read and organise only",
}
_TEXTS = ("name", "user", "host", "port", "security", "smtp_host", "smtp_port", "smtp_security",
          "ca_file")  # fmt: skip


def state_of(account: Account) -> Values:
    """The state of an account in words, and what a person can do."""
    title, words = STATES[account.state]
    return {
        "title": title,
        "words": words,
        "problem": _COMMAND.sub("", account.detail),
        "needs_sign_in": account.state == "needs_reauth",
        "is_under_way": account.state in ("new", "syncing"),
        "provider": TRAITS[account.provider].title,
    }


async def accounts(request: PageRequest) -> Values:
    """Every account that the person may see."""
    found = (await request.call(list_accounts, limit=_ROWS)).results
    return {"rows": [(account, state_of(account)) for account in found]}


async def new_account(request: PageRequest) -> Values:
    """The form of a provider; a password is never put into a page."""
    chosen = request.form.get("provider") or request.query.get("provider", "")
    given = {name: value for name, value in request.form.items() if name != "password"}
    return {
        "providers": PROVIDERS,
        "provider": chosen if chosen in PROVIDERS else "",
        "scopes": SCOPES,
        "given": given,
    }


async def add(request: PageRequest) -> Redirect | FormResult:
    """Add an account: the login is tested first. Gmail and Outlook continue with a sign-in."""
    form = request.form
    given: dict[str, Any] = {name: form[name].strip() for name in _TEXTS if form.get(name)}
    given |= {name: form.get(name, "").strip() for name in ("account_id", "provider", "address")}
    given["scopes"] = form.get("scopes", "read,draft,send").split(",")
    if given["provider"] in _BY_CODE:
        started = await request.call(start_sign_in, **given, redirect=_redirect_to(request))
        return _sign_in_page(started)
    try:
        added = await request.call(add_account, **given, password=_password(request))
    except MailError as error:
        raise _with_advice(error, given["provider"]) from error
    return Redirect(f"/accounts/{added.id}", "account added")


def _password(request: PageRequest) -> str:
    """The typed fields. Raises InvalidInput."""
    if not request.form.get("password"):
        raise InvalidInput("enter the password or the API token")
    return request.form["password"]


def _with_advice(error: MailError, provider: str) -> MailError:
    """The error, with what a person can do about it."""
    advice = ""
    if isinstance(error, ProviderAuthFailed):
        advice = "Check the user name and the password. Many providers require an app password, "
        advice += "which you create in the security settings of your account."
        if provider == "fastmail":
            advice = (
                "Create an API token in Fastmail: Settings → Privacy & Security → Manage tokens."
            )
    elif isinstance(error, (ProviderTimeout, ProviderError)):
        advice = "Check the server and the port; your provider lists them under IMAP and SMTP."
    return type(error)(f"{str(error).rstrip('.')}. {advice}", **error.details) if advice else error


def _redirect_to(request: PageRequest) -> str:
    """The redirect URL for a browser on this machine; in other browsers the address is pasted."""
    here = urlsplit(request.base_url)
    is_local = here.scheme == "http" and here.hostname in _LOOPBACK
    return f"{request.base_url}{_BACK}" if is_local else UNUSED_REDIRECT


def _sign_in_page(started: StartedSignIn) -> FormResult:
    title = TRAITS[started.provider].title
    return FormResult("accounts/sign_in.html", {"started": started, "provider": title})


async def one_account(request: PageRequest) -> Values:
    """An account, and its known capabilities."""
    account = await request.call(get_account, account_id=request.path["account_id"])
    # Only callers who manage accounts see where it logs in.
    options = account.options if request.may(Scope.ADMIN) else {}
    shown = {name: options.get(name) for name in ("host", "smtp_host", "user", "scopes")}
    return {
        "account": account,
        "state": state_of(account),
        "options": shown,
        "by_code": account.provider in _BY_CODE,
        "checked": None,
    }


async def check(request: PageRequest) -> FormResult:
    """Test the stored login, and show what the account supports."""
    try:
        found = await request.call(check_account, account_id=request.path["account_id"])
    except ProviderAuthFailed as error:
        words = _COMMAND.sub("", str(error))
        raise ProviderAuthFailed(f"{words}. Sign in again below.", **error.details) from error
    return FormResult("accounts/account.html", {**await one_account(request), "checked": found})


async def log_in(request: PageRequest) -> Redirect | FormResult:
    """Replace the password of an account, or sign in at its provider."""
    account = await request.call(get_account, account_id=request.path["account_id"])
    if account.provider in _BY_CODE:
        redirect = _redirect_to(request)
        return _sign_in_page(
            await request.call(start_sign_in, account_id=account.id, redirect=redirect)
        )
    try:
        await request.call(log_in_account, account_id=account.id, password=_password(request))
    except MailError as error:
        raise _with_advice(error, account.provider) from error
    return Redirect(f"/accounts/{account.id}", "signed in again")


async def sign_in(request: PageRequest) -> Redirect | FormResult:
    """Continue a sign-in: wait, or add the account."""
    answer = request.form.get("answer", "")
    progress = await request.call(
        finish_sign_in, sign_in=request.form.get("sign_in", ""), answer=answer
    )
    if progress.account is None:
        assert progress.started is not None
        return _sign_in_page(progress.started)
    return Redirect(f"/accounts/{progress.account.id}", "account added")


async def oauth_redirect(request: PageRequest) -> Values:
    """The redirect target of a provider; the page asks the person to continue, and then has the
    session.

    The first request comes from another site, so the browser sends no cookie with it.
    """
    query = request.query
    again = urlencode({**query, "again": "1"})
    return {
        "again": f"{_BACK}?{again}" if "again" not in query else "",
        "sign_in": query.get("state", ""),
        "answer": urlencode(
            {name: query[name] for name in ("code", "state", "error") if name in query}
        ),
        "refused": query.get("error", ""),
    }


ACCOUNTS = Page("/accounts", "accounts/list.html", accounts)
NEW = Page("/accounts/new", "accounts/new.html", new_account, scope=Scope.ADMIN)
BACK = Page(_BACK, "accounts/back.html", oauth_redirect, is_public=True)
FAILED = Page("/accounts/sign-in", "accounts/sign_in_failed.html")
ACCOUNT = Page("/accounts/{account_id}", "accounts/account.html", one_account)
REMOVE = Page(
    "/accounts/{account_id}/remove", "accounts/remove.html", one_account, scope=Scope.ADMIN
)

SECTION = Section(
    links=(Link("Accounts", "/accounts", menu=True),),
    pages=(ACCOUNTS, NEW, BACK, ACCOUNT, REMOVE),
    forms=(
        Form("/accounts/new", add, NEW),
        Form("/accounts/sign-in", sign_in, FAILED),
        Form("/accounts/{account_id}/sync", sync_account, ACCOUNT, notice="asked to sync"),
        Form("/accounts/{account_id}/check", check, ACCOUNT),
        Form("/accounts/{account_id}/login", log_in, ACCOUNT),
        Form(
            "/accounts/{account_id}/remove",
            remove_account,
            REMOVE,
            redirect_to="/accounts",
            notice="account removed",
        ),
    ),
    notices={
        "account added": "Account added. Its mail is being synced, newest first.",
        "asked to sync": "Sync started.",
        "signed in again": "Signed in. Syncing resumes where it stopped.",
        "account removed": "Account removed, with its mail here. Nothing changed at the provider.",
    },
)
