"""One connection of SMTP or LMTP: what the client says, and what we answer.

A mail is acknowledged when it is on disk and not before. PIPELINING is not offered, so whatever
follows the end of a mail before our answer was never meant as a command: such mail is refused.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from postroom.errors import MailError, RateLimited
from postroom.operations.rates import Rates
from postroom.pipeline.addressing import inboxes_for
from postroom.pipeline.intake import Intake
from postroom.surfaces.smtp.commands import Path, parse_path
from postroom.surfaces.smtp.spool import Spool, Spools
from postroom.surfaces.smtp.taking import Envelope, Taking, for_all
from postroom.surfaces.smtp.wire import Gone, Wire

IDLE_S = 300.0
"""How long a command may take to come, from the answer to the one before it."""

MAIL_S = 3_600.0
"""How long a mail may take to come, which must not be silent for `IDLE_S` either."""

HANDSHAKE_S = 30.0
MOST_LINE_BYTES = 2_000
MOST_RECIPIENTS = 100
MOST_ERRORS = 20
_FROM_PARAMETERS = {"SIZE", "BODY", "SMTPUTF8"}


class _Over(Exception):
    """We end the connection; the last words are said."""


@dataclass(slots=True)
class Session:
    """Speaks with one client until it leaves."""

    wire: Wire
    intake: Intake
    our_name: str
    tls: ssl.SSLContext | None
    rates: Rates
    spools: Spools
    idle_s: float = IDLE_S
    mail_s: float = MAIL_S
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    _greeted: bool = False
    _is_lmtp: bool = False
    _is_encrypted: bool = False
    _mail: Envelope | None = None
    _errors: int = 0

    async def run(self) -> None:
        """Serve the client."""
        try:
            await self._say(f"220 {self.our_name} ESMTP Postroom")
            while True:
                await self._answer(await self._line())
        except TimeoutError:
            await self._farewell("421 4.4.2 this takes too long; try again later")
        except (Gone, _Over):
            pass
        finally:
            self.wire.close()

    async def _farewell(self, words: str) -> None:
        try:
            await self._say(words)
        except Gone:
            return

    async def _say(self, *lines: str) -> None:
        said = "".join(f"{line}\r\n" for line in lines).encode()
        await self.wire.send(said, self.idle_s)

    async def _line(self) -> str | None:
        """The next command; None if it was none. A line that is too long ends the connection."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.idle_s
        while (end := self.wire.buffer.find(b"\n")) < 0:
            if len(self.wire.buffer) > MOST_LINE_BYTES:
                break
            await self.wire.more(until - loop.time())
        if end < 0 or end > MOST_LINE_BYTES:
            await self._say("500 5.5.2 the line is too long")
            raise _Over
        line = bytes(self.wire.buffer[: end + 1])
        del self.wire.buffer[: end + 1]
        if not line.endswith(b"\r\n") or b"\0" in line or b"\r" in line[:-2]:
            await self._refuse("500 5.5.2 end lines with CR LF, without control characters")
            return None
        return line[:-2].decode("utf-8", "replace")

    async def _answer(self, line: str | None) -> None:
        if line is None:
            return
        verb, _, argument = line.partition(" ")
        command = _COMMANDS.get(verb.upper())
        if command is None:
            missing = "500 5.5.2 the line is empty; say a command"
            await self._refuse("500 5.5.1 there is no such command here" if verb else missing)
            return
        await command(self, argument.strip())

    async def _refuse(self, words: str) -> None:
        self._errors += 1
        if self._errors >= MOST_ERRORS:
            await self._say(words, "421 4.7.0 too many errors; good bye")
            raise _Over
        await self._say(words)

    async def _hello(self, name: str, *, is_lmtp: bool, is_extended: bool) -> None:
        if not name:
            await self._refuse("501 5.5.4 say who you are")
            return
        self._greeted, self._is_lmtp, self._mail = True, is_lmtp, None
        if not is_extended:
            await self._say(f"250 {self.our_name}")
            return
        limits = self.intake.house.limits
        offers = [f"SIZE {limits.message_bytes}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        if self.tls is not None and not self._is_encrypted:
            offers.append("STARTTLS")
        *first, last = [self.our_name, *offers]
        await self._say(*(f"250-{offer}" for offer in first), f"250 {last}")

    async def helo(self, name: str) -> None:
        await self._hello(name, is_lmtp=False, is_extended=False)

    async def ehlo(self, name: str) -> None:
        await self._hello(name, is_lmtp=False, is_extended=True)

    async def lhlo(self, name: str) -> None:
        await self._hello(name, is_lmtp=True, is_extended=True)

    async def starttls(self, argument: str) -> None:
        if self.tls is None or self._is_encrypted:
            await self._refuse("503 5.5.1 TLS is not to be had now")
            return
        if argument or self.wire.buffer:
            await self._say("554 5.5.1 something was said before TLS")
            raise _Over
        await self._say("220 2.0.0 go ahead")
        await self.wire.start_tls(self.tls, HANDSHAKE_S)
        self._greeted, self._mail, self._is_encrypted = False, None, True

    async def mail(self, argument: str) -> None:
        path = parse_path("FROM", argument)
        if not self._greeted:
            await self._refuse("503 5.5.1 say EHLO first")
        elif self._mail is not None:
            await self._refuse("503 5.5.1 one mail at a time; say RSET to forget the other")
        elif path is None:
            await self._refuse("501 5.1.7 write it as MAIL FROM:<address>")
        elif problem := self._wrong_parameters(path):
            await self._refuse(problem)
        else:
            await self._begin(path)

    async def _begin(self, path: Path) -> None:
        try:
            self.rates.take(self.wire.peer)
        except RateLimited as error:
            self._failed("smtp_limited", wait_s=error.retry_after)
            await self._say(f"450 4.7.1 too many mails from you; again in {error.retry_after} s")
            return
        self._mail = Envelope(path.address)
        await self._say("250 2.1.0 ok")

    def _wrong_parameters(self, path: Path) -> str | None:
        if unknown := set(path.parameters) - _FROM_PARAMETERS:
            return f"555 5.5.4 {min(unknown)[:40]} is not known here"
        if path.parameters.get("BODY", "7BIT").upper() not in ("7BIT", "8BITMIME"):
            return "501 5.5.4 BODY is 7BIT or 8BITMIME"
        size = path.parameters.get("SIZE", "0")
        if not size.isdecimal() or len(size) > 20:
            return "501 5.5.4 SIZE is a number"
        if int(size) > self.intake.house.limits.message_bytes:
            return "552 5.3.4 the mail is over the limit"
        return None

    async def rcpt(self, argument: str) -> None:
        path = parse_path("TO", argument)
        if self._mail is None:
            await self._refuse("503 5.5.1 say MAIL first")
        elif path is None or not path.address:
            await self._refuse("501 5.1.3 write it as RCPT TO:<address>")
        elif path.parameters:
            await self._refuse("555 5.5.4 RCPT takes no parameters here")
        elif len(self._mail.inboxes) >= MOST_RECIPIENTS:
            # RFC 5321 §4.5.3.1.10: no mistake, the others get another copy of the mail.
            await self._say(f"452 4.5.3 {MOST_RECIPIENTS} recipients are enough for one mail")
        else:
            await self._recipient(self._mail, self._at_home(path.address))

    def _at_home(self, address: str) -> str:
        """RFC 5321 §4.5.1: the postmaster needs no domain."""
        return address if "@" in address else f"{address}@{self.our_name}"

    async def _recipient(self, mail: Envelope, address: str) -> None:
        try:
            inbox = (await inboxes_for(self.intake.house, [address])).get(address.lower())
        except MailError as error:
            self._failed("smtp_failed", error=str(error))
            await self._say("451 4.3.0 we cannot look it up now; try again later")
            return
        if inbox is not None:
            mail.inboxes.append(inbox.id)
            await self._say("250 2.1.5 ok")
            return
        self._count("recipients_refused")
        is_ours = address.lower().rpartition("@")[2] in self.intake.house.domains
        await self._refuse(
            "550 5.1.1 nobody here has this address" if is_ours else "550 5.7.1 we do not relay"
        )

    async def data(self, argument: str) -> None:
        mail = self._mail
        if mail is None or not mail.inboxes:
            await self._refuse("503 5.5.1 say RCPT first")
            return
        if argument:
            await self._refuse("501 5.5.4 DATA takes no argument")
            return
        if self.wire.buffer:
            await self._say("503 5.5.0 wait for the answer to DATA")
            raise _Over
        await self._say("354 end it with a dot on a line of its own")
        spool = self.spools.new()
        try:
            await spool.fill(self.wire, self.idle_s, self.mail_s)
            if self.wire.buffer:
                await self._smuggled()
            self._mail = None
            async with self.spools.turn(spool):
                await self._take(mail, spool)
        finally:
            spool.close()

    async def _smuggled(self) -> None:
        """Without PIPELINING nobody speaks before we answer, except a smuggler."""
        self._count("refused")
        self._failed("smtp_smuggled", reason="words before our answer")
        await self._say("554 5.5.0 wait for the answer to your mail; it was not taken")
        raise _Over

    async def _take(self, mail: Envelope, spool: Spool) -> None:
        answers = await Taking(self.intake, self._failed).answers(mail, spool)
        words = for_all(answers)
        if words[0] != "4":
            self._count("accepted" if words[0] == "2" else "refused")
        await self._say(*(answers if self._is_lmtp else [words]))

    def _count(self, what: str) -> None:
        self.intake.house.counts.add(f"smtp_{what}")

    def _failed(self, name: str, *, cause: Exception | None = None, **context: object) -> None:
        """A failure, in the words that find the connection again: never those of the mail."""
        about = {"session": self.id, "peer": self.wire.peer, **context}
        self.intake.house.counts.failed(name, about, cause=cause)

    async def rset(self, _argument: str) -> None:
        self._mail = None
        await self._say("250 2.0.0 ok")

    async def noop(self, _argument: str) -> None:
        await self._say("250 2.0.0 ok")

    async def vrfy(self, _argument: str) -> None:
        await self._say("252 2.5.0 send it and see")

    async def help(self, _argument: str) -> None:
        await self._say("214 2.0.0 RFC 5321 explains it all")

    async def quit(self, _argument: str) -> None:
        await self._say("221 2.0.0 good bye")
        raise _Over


_COMMANDS: dict[str, Callable[[Session, str], Awaitable[None]]] = {
    "HELO": Session.helo,
    "EHLO": Session.ehlo,
    "LHLO": Session.lhlo,
    "STARTTLS": Session.starttls,
    "MAIL": Session.mail,
    "RCPT": Session.rcpt,
    "DATA": Session.data,
    "RSET": Session.rset,
    "NOOP": Session.noop,
    "VRFY": Session.vrfy,
    "HELP": Session.help,
    "QUIT": Session.quit,
}
