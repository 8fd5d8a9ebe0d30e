"""Mail of an account as it arrives here: parsed, put into its inbox, and never twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postroom.errors import InvalidInput, Unstorable
from postroom.mail.message import ParsedMessage
from postroom.model.account import Account
from postroom.model.inbox import ARCHIVE, INBOX, SENT
from postroom.model.message import Direction
from postroom.model.remote import RemoteMessage
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, put_away

Mail = tuple[RemoteMessage, bytes]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Keeps what was fetched from one account."""

    house: House
    account: Account

    async def keep(self, mails: Sequence[Mail]) -> None:
        """Store mails; what is empty, too large or refused by the database is skipped."""
        most = self.house.limits.message_bytes
        good = [mail for mail in mails if 0 < len(mail[1]) <= most]
        for remote, raw in mails:
            if (remote, raw) not in good:
                self.skip(remote, bytes=len(raw))
        await self._keep_good(good)

    async def _keep_good(self, good: Sequence[Mail]) -> None:
        """Store mails together; one that the database refuses is left out alone."""
        try:
            await self._add(good)
        except (InvalidInput, Unstorable) as error:
            if len(good) == 1:
                remote, raw = good[0]
                self.skip(remote, bytes=len(raw), error=str(error))
                return
            for mail in good:
                await self._keep_good([mail])

    def skip(self, remote: RemoteMessage, **why: object) -> None:
        """Leave a mail where it is, and tell whoever watches over us."""
        about = {"account": self.account.id, "ref": remote.ref.key, **why}
        self.house.counts.failed("sync_skipped", about)

    async def _add(self, good: Sequence[Mail]) -> None:
        house = self.house
        parsed = await house.parser.parse([raw for _, raw in good])
        arrivals = [
            (self._arrival(remote, raw, mail), mail)
            for (remote, raw), mail in zip(good, parsed, strict=True)
        ]
        async with put_away(house, arrivals) as messages:
            pairs = list(zip(messages, (remote for remote, _ in good), strict=True))
            await house.store.add_remote(self.account.id, pairs)

    def _arrival(self, remote: RemoteMessage, raw: bytes, parsed: ParsedMessage) -> Arrival:
        mailbox, *others = remote.mailboxes or (ARCHIVE,)
        return Arrival(
            raw,
            self.account.inbox_id,
            mailbox,
            direction=self._direction(remote, parsed),
            flags=remote.flags,
            is_imported=self._is_old(remote),
            other_mailboxes=tuple(others),
            labels=remote.labels or (),
            arrived_at=remote.arrived_at,
        )

    def _is_old(self, remote: RemoteMessage) -> bool:
        """What was there before the account was added is no news."""
        return remote.arrived_at is not None and remote.arrived_at < self.account.created_at

    def _direction(self, remote: RemoteMessage, parsed: ParsedMessage) -> Direction:
        if SENT in remote.mailboxes:
            return "outbound"
        own = parsed.sender is not None and parsed.sender.address.lower() == self.account.address
        return "outbound" if own and INBOX not in remote.mailboxes else "inbound"
