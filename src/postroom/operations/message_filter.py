"""What narrows a list or a search of messages, and how its texts are looked for."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from postroom.errors import InvalidInput
from postroom.mail.fold import fold
from postroom.model.stored import MessageQuery
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.id_kinds import check_kinds
from postroom.operations.names import LabelName, MailboxName
from postroom.operations.request import Accepts, Moment, OptionalId, Paged, Together, not_both

SOUGHT = Accepts({"pattern": forms.SOUGHT})


class MessageFilter(Paged):
    """The filters that lists and searches share."""

    together: ClassVar[tuple[Together, ...]] = (*Paged.together, not_both("text", "q", "query"))
    inbox_id: Annotated[
        OptionalId, Field(description="Only this inbox.", examples=["inb_7k2m9q"])
    ] = None
    thread_id: Annotated[
        OptionalId, Field(description="Only this thread.", examples=["thr_9d3f1x"])
    ] = None
    q: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Literal text, in any case: in subject, body, sender or attachment names.",
            examples=["invoice.pdf"],
        ),
        SOUGHT,
    ] = None
    query: Annotated[
        str | None,
        Field(min_length=1, max_length=256, description="The same as q.", examples=["invoice"]),
        SOUGHT,
    ] = None
    labels: Annotated[
        list[LabelName],
        Field(max_length=50, description="With all of these labels.", examples=[["Work"]]),
    ] = []
    sender: Annotated[
        str | None,
        Field(
            alias="from",
            min_length=1,
            max_length=256,
            description="Sender: address, @domain, or a part of address or name.",
            examples=["@example.com"],
        ),
        SOUGHT,
    ] = None
    recipient: Annotated[
        str | None,
        Field(
            alias="to",
            min_length=1,
            max_length=256,
            description="The same for to, cc and bcc.",
            examples=["ana@example.com"],
        ),
        SOUGHT,
    ] = None
    has_attachment: Annotated[
        bool | None, Field(description="With or without attachments.", examples=[True])
    ] = None
    after_date: Annotated[
        Moment, Field(description="From this time on.", examples=["2026-01-31"])
    ] = None
    before_date: Annotated[
        Moment, Field(description="Before this time.", examples=["2026-02-28T12:00Z"])
    ] = None
    mailbox: Annotated[
        MailboxName | None,
        Field(
            description="Only this mailbox; * is all. Default: all but Trash, Junk.",
            examples=["Archive"],
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _query_is_q(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("query") is None:
            return data
        given = [data[name] for name in ("q", "query") if data.get(name) not in (None, "")]
        if given[1:] not in ([], given[:1]):
            raise ValueError("q and query differ; they mean the same, so give one")
        rest = {name: value for name, value in data.items() if name not in ("q", "query")}
        return {**rest, "q": given[0] if given else ""}

    def criteria(self, ctx: Context) -> MessageQuery:
        """What the store is asked.

        Raises:
            InvalidInput: a text folds to nothing, or an id is of another kind.
        """
        check_kinds(inbox_id=self.inbox_id, thread_id=self.thread_id)
        return MessageQuery(
            visible=ctx.visible,
            inbox_id=self.inbox_id,
            thread_id=self.thread_id,
            q=folded("q", self.q),
            sender=folded("from", self.sender),
            recipient=folded("to", self.recipient),
            labels=tuple(self.labels),
            has_attachment=self.has_attachment,
            after=self.after_date,
            before=self.before_date,
            mailbox=self.mailbox,
            page=ctx.cursors.slice(self),
        )


def folded(name: str, text: str | None) -> str | None:
    """A text in the form in which it is looked for. Raises InvalidInput if nothing is left."""
    if text is None:
        return None
    found = fold(text)
    if not found:
        raise InvalidInput(f"{name}: there is nothing to look for in it but space")
    return found
