"""Partial results: what failed on the way, kept beside what was got."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from postroom.errors import MailError, NotFound, ProviderError, ProviderTimeout, TooLarge
from postroom.model.live import Issue, Outcome

_SOFT = (ProviderError, NotFound, TooLarge)
"""What a live mailbox may do at any time. Wrong input and conflicts are no issues: they fly."""


@dataclass(slots=True)
class Issues:
    """Keeps what failed; `stage` says where we are, `message_id` and `uid` with what."""

    stage: str = "connect"
    message_id: str | None = None
    uid: int | None = None
    found: list[Issue] = field(default_factory=list)

    @contextmanager
    def collect(self, stage: str | None = None) -> Iterator[None]:
        """Turn errors of the other side into issues and go on."""
        self.stage = stage or self.stage
        try:
            yield
        except _SOFT as error:
            self.add(error.code, str(error), retryable=error.retryable)

    def add(
        self,
        code: str,
        message: str,
        *,
        stage: str | None = None,
        retryable: bool = False,
        uid: int | None = None,
        message_id: str | None = None,
    ) -> None:
        """Keep one issue."""
        self.found.append(
            Issue(
                code,
                stage or self.stage,
                message,
                retryable,
                uid if uid is not None else self.uid,
                message_id or self.message_id,
            )
        )

    @property
    def all(self) -> tuple[Issue, ...]:
        return tuple(self.found)

    def status(self, *, has_result: bool) -> Outcome:
        """How it went as a whole."""
        if not self.found:
            return "ok"
        return "partial" if has_result else "failed"


@dataclass(slots=True)
class Steps(Issues):
    """Issues of a change that takes several steps; `is_unsure` if one may or may not be done."""

    attempted: int = 0
    succeeded: int = 0
    is_unsure: bool = False

    @contextmanager
    def step(self, stage: str) -> Iterator[None]:
        """Do one step that changes something, and count it.

        Without an answer nobody knows whether it was done: that is said, and not retried.
        """
        self.stage = stage
        self.attempted += 1
        try:
            yield
        except _SOFT as error:
            if not may_be_done(error):
                self.add(error.code, str(error), retryable=error.retryable)
                return
            self.is_unsure = True
            self.add(error.code, f"{error}. It may have been done; look before you repeat it")
        else:
            self.succeeded += 1


def may_be_done(error: MailError) -> bool:
    """Whether the other side may have done what was asked, although it gave no answer."""
    if isinstance(error, ProviderTimeout):
        return True
    return isinstance(error, ProviderError) and "server_said" not in error.details
