"""What can go wrong on the wire, in the words of the wire.

ImapFault
├── Disconnected    no connection, or it ended before the answer
├── TimedOut        nothing came in time
├── NotSecure       TLS is not as demanded; nothing secret was sent
├── Unreadable      what came is not IMAP, or more than was asked for
└── Refused         the server said NO or BAD
    └── LoginRefused
"""

from __future__ import annotations


class ImapFault(Exception):
    """A command did not come to a good end."""


class Disconnected(ImapFault):
    """There is no connection, or it ended before the answer was whole."""


class TimedOut(ImapFault):
    """The server did not answer in time."""


class NotSecure(ImapFault):
    """The connection cannot be made as secure as demanded."""


class Unreadable(ImapFault):
    """The server said what is not IMAP, or more than anyone asked for."""


class Refused(ImapFault):
    """The server said NO or BAD; `code` is the response code in brackets, upper case."""

    def __init__(self, command: str, word: str, code: str, text: str) -> None:
        super().__init__(f"{command}: {word} {text}")
        self.command = command
        self.word = word
        self.code = code
        self.text = text


class LoginRefused(Refused):
    """The server does not take this user and secret."""
