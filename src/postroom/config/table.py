"""What can be set: one row for each setting."""

from __future__ import annotations

from functools import partial

from postroom.config.limits import LIMITS
from postroom.config.readers import (
    read_address,
    read_audit_key,
    read_blobs,
    read_bucket,
    read_database,
    read_embeddings,
    read_host,
    read_integer,
    read_key,
    read_listen,
    read_login,
    read_model,
    read_networks,
    read_path,
    read_public_key,
    read_relay,
    read_selector,
    read_signing_secret,
    read_text,
    read_topics,
    read_truth,
    read_url,
    read_vault_kind,
    read_words,
)
from postroom.config.settings import Setting

_A_URL = "an http or https URL"
_DOMAIN = r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "data_dir",
        read_path,
        "a folder",
        "Where everything is kept.",
        "the user's data folder",
        option="--data",
    ),
    Setting(
        "database_url",
        read_database,
        "a postgresql URL",
        "The PostgreSQL database that keeps mail instead of SQLite in the data folder.",
        "SQLite in the data folder",
        is_secret=True,
    ),
    Setting(
        "blobs_url",
        read_blobs,
        "an s3 URL",
        "The bucket that keeps raw mail and attachments instead of the data folder.",
        "files in the data folder",
    ),
    Setting(
        "blobs_public_url",
        read_url,
        _A_URL,
        "Where others reach the server of the bucket, for links to files, if not where we do.",
        "where we do",
    ),
    Setting(
        "audit_key",
        read_audit_key,
        "64 hexadecimal digits",
        "What the audit log is sealed with; machines that share a database must share it.",
        "the file audit.key of the data folder",
        is_secret=True,
    ),
    Setting("host", read_host, "an address", "Where the server listens.", "127.0.0.1"),
    Setting(
        "port",
        partial(read_integer, 0, 65_535),
        "0 to 65535",
        "The port of the server; 0 takes any that is free.",
        "8700",
    ),
    Setting(
        "domain",
        partial(read_words, _DOMAIN, "domain names, several with commas"),
        "domain names, with commas",
        "The domains whose mail we receive; new inboxes get the first.",
        "postroom.localhost",
        place="domains",
    ),
    Setting(
        "trusted_servers",
        partial(read_words, _DOMAIN, "names of servers, several with commas"),
        "names, with commas",
        "The mail servers before us whose Authentication-Results we believe.",
        "none",
    ),
    Setting(
        "dkim_keys",
        read_path,
        "a file",
        "Public keys of DKIM signers, as `dig TXT` shows them, to check signatures with.",
    ),
    Setting(
        "smtp_listen",
        read_listen,
        "an address and a port, or none",
        "Where mail is received over SMTP and LMTP.",
        "127.0.0.1:8725",
        option="--smtp",
    ),
    Setting(
        "catch_all",
        read_address,
        "an address",
        "The inbox that gets mail to unknown addresses of our domains.",
    ),
    Setting(
        "tls_cert", read_path, "a PEM file", "The certificate for STARTTLS of the SMTP listener."
    ),
    Setting("tls_key", read_path, "a PEM file", "The key of that certificate."),
    Setting(
        "relay_url",
        read_relay,
        "an smtp or smtps URL",
        "The server that takes our mail to others; without it nothing leaves.",
        is_secret=True,
    ),
    Setting(
        "webhook_allow",
        read_networks,
        "networks, with commas",
        "Private networks that webhooks may be in.",
        "none",
    ),
    Setting(
        "dkim_key", read_path, "a PEM file", "The key that signs outgoing mail (RSA or Ed25519)."
    ),
    Setting(
        "dkim_selector",
        read_selector,
        "a DNS label",
        "The name under which DNS has the public key.",
        "postroom",
    ),
    Setting(
        "mailgun_signing_key",
        read_key,
        "8 to 256 characters",
        "Mailgun's HTTP webhook signing key, to receive mail from its routes.",
        is_secret=True,
    ),
    Setting(
        "sendgrid_public_key",
        read_public_key,
        "base64, as SendGrid shows it",
        "The public key of SendGrid's security policy, to receive from Inbound Parse.",
    ),
    Setting(
        "resend_signing_secret",
        read_signing_secret,
        "whsec_ and base64",
        "The signing secret of Resend's webhook, to receive mail from it.",
        is_secret=True,
    ),
    Setting(
        "resend_api_key",
        read_key,
        "8 to 256 characters",
        "The API key that fetches the mail that Resend tells of.",
        is_secret=True,
    ),
    Setting(
        "ses_topics",
        read_topics,
        "topic ARNs, with commas",
        "The SNS topics through which Amazon SES sends us mail.",
        "none",
    ),
    Setting(
        "ses_bucket",
        read_bucket,
        "the name of a bucket",
        "The one bucket from which mail is fetched that Amazon SES has put there.",
    ),
    Setting(
        "postmark_login",
        read_login,
        "name:password",
        "The name and password in the URL that Postmark posts mail to.",
        is_secret=True,
    ),
    Setting(
        "inbound_window_s",
        partial(read_integer, 30, 86_400),
        "30 to 86400",
        "How old the signature of Mailgun, SendGrid or Resend may be, in seconds.",
        "300",
    ),
    Setting(
        "api_key",
        read_key,
        "8 to 256 characters",
        "The owner's key; without it, the first `serve` makes one.",
        is_secret=True,
    ),
    Setting(
        "public_url",
        read_url,
        "an http or https URL",
        "The address others reach the server under, if it is behind a proxy.",
    ),
    Setting(
        "toolsets",
        partial(read_words, r"[a-z]+", "names of toolsets, several with commas"),
        "names, with commas",
        "The MCP toolsets to show.",
        "all",
    ),
    Setting("read_only", read_truth, "true or false", "Hide every MCP tool that writes.", "false"),
    Setting(
        "memory_search", read_truth, "true or false", "Whether memories can be searched.", "true"
    ),
    Setting(
        "embeddings",
        read_embeddings,
        "bundled, none, or a URL",
        "What finds by meaning: our own model, nothing, or an endpoint like OpenAI's `/v1`.",
        "bundled",
    ),
    Setting(
        "embeddings_model",
        read_model,
        "a name",
        "The model that the endpoint shall use.",
        "text-embedding-3-small",
    ),
    Setting(
        "embeddings_key",
        read_key,
        "8 to 256 characters",
        "The key for the endpoint.",
        is_secret=True,
    ),
    Setting(
        "secrets",
        read_vault_kind,
        "auto, keyring or file",
        "Where passwords and tokens of accounts are kept: the keyring of the operating system, "
        "or encrypted files.",
        "auto",
    ),
    Setting(
        "gmail_url", read_url, _A_URL, "Where the Gmail API is.", "https://gmail.googleapis.com"
    ),
    Setting(
        "gmail_login_url",
        read_url,
        _A_URL,
        "Where people sign in to Google.",
        "https://accounts.google.com",
    ),
    Setting(
        "gmail_oauth_url",
        read_url,
        _A_URL,
        "Where Google gives out tokens.",
        "https://oauth2.googleapis.com",
    ),
    Setting("gmail_client_id", read_text, "text", "Our client ID at Google."),
    Setting(
        "gmail_client_secret", read_text, "text", "The secret that belongs to it.", is_secret=True
    ),
    Setting(
        "outlook_url",
        read_url,
        _A_URL,
        "Where Microsoft Graph is.",
        "https://graph.microsoft.com/v1.0",
    ),
    Setting(
        "outlook_login_url",
        read_url,
        _A_URL,
        "Where people sign in to Microsoft.",
        "https://login.microsoftonline.com/common",
    ),
    Setting("outlook_client_id", read_text, "text", "Our client ID at Microsoft."),
    Setting("fastmail_url", read_url, _A_URL, "Where JMAP is.", "https://api.fastmail.com"),
    *LIMITS,
)
