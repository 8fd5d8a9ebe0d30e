"""Operations: administration. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import UNSET, UnsetType

from postroom.client.method import operation, pages
from postroom.client.responses import Page
from postroom.client.values.inputs import RecipientPatterns
from postroom.client.values.records import Account, AuditEntry, Capabilities, CapabilityReport, Key


class AdministrationOperations:
    """Mailboxes at providers that are synced. Features that accounts and local inboxes
    support. Keys of callers, with their scopes and limits. The audit log.
    """

    @operation("POST", "/v1/accounts")
    def add_account(
        self,
        account_id: str,
        provider: Literal["imap", "gmail", "outlook", "fastmail"],
        *,
        address: str,
        password: str | None = None,
        access_token: str | None = None,
        refresh_token: str | None = None,
        token_expires_at: int | None = None,
        name: str | None = None,
        user: str | None = None,
        host: str | None = None,
        port: int | None = None,
        security: Literal["tls", "starttls", "none"] | None = None,
        smtp_host: str | None = None,
        smtp_port: int | None = None,
        smtp_security: Literal["tls", "starttls", "none"] | None = None,
        ca_file: str | None = None,
        insecure: bool | None = None,
        scopes: Sequence[Literal["read", "draft", "send"]] | None = None,
    ) -> Account:
        """Add a mailbox at a provider: its mail is synced with a new inbox.

        The login is tested first; nothing is stored if it fails.

        Args:
            account_id: A name for the account.
            provider: imap, gmail, outlook or fastmail.
            address: Its e-mail address.
            password: The password, or for fastmail an API token.
            access_token: gmail and outlook: the OAuth access token.
            refresh_token: gmail and outlook: the OAuth refresh token.
            token_expires_at: When the access token expires, in seconds since 1970.
            name: The name shown as sender.
            user: The user name, if it is not the address.
            host: imap: the server.
            port: imap: the port of the server (default 993).
            security: imap: the transport security: tls, starttls or none (default tls).
            smtp_host: imap: the SMTP server; without it, the account cannot send.
            smtp_port: imap: the port of the SMTP server (default 465).
            smtp_security: imap: the transport security of the SMTP server (default tls).
            ca_file: Trust this certificate instead of the system's.
            insecure: Do not require TLS; works on loopback only.
            scopes: The operations to allow; read is always included (default read, draft,
                send).
        """

    @pages("GET", "/v1/accounts")
    def list_accounts(
        self, *, limit: int | None = None, offset: int | None = None, cursor: str | None = None
    ) -> Page[Account]:
        """List the synced accounts with their progress and problems."""

    @operation("DELETE", "/v1/accounts/{account_id}")
    def remove_account(self, account_id: str) -> None:
        """Remove an account with its inbox and its stored mail. Nothing changes at the provider."""

    @operation("POST", "/v1/accounts/{account_id}/sync")
    def sync_account(self, account_id: str) -> Account:
        """Sync an account now."""

    @operation("POST", "/v1/accounts/{account_id}/check")
    def check_account(self, account_id: str) -> Capabilities:
        """Log in to an account now and show what it supports."""

    @operation("POST", "/v1/accounts/{account_id}/login")
    def log_in_account(
        self,
        account_id: str,
        *,
        password: str | None = None,
        access_token: str | None = None,
        refresh_token: str | None = None,
        token_expires_at: int | None = None,
    ) -> Account:
        """Replace the password or tokens of an account. The new login is tested first.

        Args:
            password: The password, or for fastmail an API token.
            access_token: gmail and outlook: the OAuth access token.
            refresh_token: gmail and outlook: the OAuth refresh token.
            token_expires_at: When the access token expires, in seconds since 1970.
        """

    @operation("GET", "/v1/capabilities")
    def get_capabilities(self, *, account_id: str | None = None) -> CapabilityReport:
        """Show the features that an account, or local inboxes, support.

        Args:
            account_id: Only this account.
        """

    @operation("POST", "/v1/keys")
    def create_key(
        self,
        name: str,
        *,
        scopes: Sequence[Literal["read", "write", "send", "admin", "approve"]] | None = None,
        inboxes: Sequence[str] | None = None,
        accounts: Sequence[str] | None = None,
        namespaces: Sequence[str] | None = None,
        approval: Literal["never", "risky", "always"] | None = None,
        recipients: RecipientPatterns | None = None,
        expires_at: str | None = None,
    ) -> Key:
        """Create a key. It is shown only once.

        Args:
            name: What it is for.
            scopes: Its scopes (default read).
            inboxes: The only inboxes that it sees; default: all.
            accounts: The only accounts that it sees, with their inboxes; default: all.
            namespaces: The only namespaces of memories that it sees; default: all, or none if
                inboxes or accounts are given.
            approval: Which of its mail waits for approval.
            recipients: Recipients to trust or to refuse.
            expires_at: When it expires: a time, or a time from now such as 30d.
        """

    @pages("GET", "/v1/keys")
    def list_keys(
        self, *, limit: int | None = None, offset: int | None = None, cursor: str | None = None
    ) -> Page[Key]:
        """List the keys, oldest first; secrets are not stored."""

    @operation("PATCH", "/v1/keys/{key_id}")
    def update_key(
        self,
        key_id: str,
        *,
        name: str | UnsetType | None = UNSET,
        expires_at: str | UnsetType | None = UNSET,
        approval: Literal["never", "risky", "always"] | UnsetType | None = UNSET,
        recipients: RecipientPatterns | UnsetType | None = UNSET,
    ) -> Key:
        """Rename a key, or change its expiry or the policy of its mail.

        A key that has expired works again when extended.

        Args:
            name: What it is for.
            expires_at: When it expires: a time, a time from now such as 30d, or never.
            approval: Which of its mail waits for approval.
            recipients: Recipients to trust or to refuse.
        """

    @operation("DELETE", "/v1/keys/{key_id}")
    def delete_key(self, key_id: str) -> None:
        """Revoke a key immediately."""

    @pages("GET", "/v1/audit")
    def list_audit(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        via: Literal["rest", "mcp", "mcp-stdio", "cli", "web", "smtp", "rule", "sync"]
        | None = None,
        after_date: datetime | str | None = None,
        before_date: datetime | str | None = None,
    ) -> Page[AuditEntry]:
        """List changes made by keys, tools and rules, newest first.

        Args:
            actor: Only this key or rule.
            action: Only this action.
            target: Only on this object.
            via: Only changes requested this way.
            after_date: From this time on.
            before_date: Before this time.
        """
