from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postroom.mail.message import ParsedMessage
from postroom.mail.parse import parse_message
from postroom.mail.threads import (
    WINDOW,
    Candidate,
    Sibling,
    base_subject,
    choose_by_reference,
    choose_by_series,
    choose_by_subject,
    is_reply_subject,
    subject_key,
    thread_keys,
)

NOON = datetime(2026, 10, 10, 12, tzinfo=UTC)
OURS = "inbox@postroom.example"


def mail(**headers: str) -> ParsedMessage:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return parse_message("\n".join((*lines, "", "Hi")).encode())


@pytest.mark.parametrize(
    ("subject", "base"),
    [
        ("Re: Lunch", "Lunch"),
        ("RE: AW: Fwd: Lunch", "Lunch"),
        ("Re[2]: Lunch", "Lunch"),
        ("SV: VS: Antw: Lunch", "Lunch"),
        ("回复：Lunch", "Lunch"),
        ("答复: 转发: Lunch", "Lunch"),
        ("Re: [list] Re: [PATCH 1/2] Lunch", "Lunch"),
        ("[list] Lunch (was: Breakfast)", "Lunch"),
        ("Lunch (fwd)", "Lunch"),
        ("  Re:   two   words ", "two words"),
        ("Re: ", ""),
        ("[PATCH]", "[PATCH]"),
        ("Regards: none", "Regards: none"),
        ("Note: read this", "Note: read this"),
        ("Antw.: Lunch", "Lunch"),
        ("Réf. : Lunch", "Lunch"),
        ("Re^3: Lunch", "Lunch"),
        ("RE*2: Lunch", "Lunch"),
        ("Automatic reply: Re: Lunch", "Lunch"),
        ("Abwesenheitsnotiz: Lunch", "Lunch"),
        ("Réponse automatique : Lunch", "Lunch"),
        ("Автоматический ответ: Lunch", "Lunch"),
        ("自动答复: Lunch", "Lunch"),
        ("My automatic reply: Lunch", "My automatic reply: Lunch"),
    ],
)
def test_a_base_subject_has_no_prefixes(subject: str, base: str) -> None:
    assert base == base_subject(subject)


def test_a_reply_subject_claims_to_answer() -> None:
    assert is_reply_subject("[list] Re: Lunch")
    assert is_reply_subject("Antwort: Lunch")
    assert is_reply_subject("Out of office: Lunch")
    assert not is_reply_subject("Fwd: Lunch")
    assert not is_reply_subject("Lunch")


def test_base_subjects_compare_folded() -> None:
    assert subject_key("Re: CAFÉ  today") == subject_key("café today")


def test_the_direct_parent_comes_first() -> None:
    parsed = mail(Message_ID="<4@x>", In_Reply_To="<3@x>", References="<1@x> <2@x> <3@x>")

    assert ("3@x", "2@x", "1@x") == thread_keys(parsed)


def test_in_reply_to_counts_where_references_lack_it() -> None:
    parsed = mail(In_Reply_To="<9@x>", References="<1@x> <2@x>")

    assert ("9@x", "2@x", "1@x") == thread_keys(parsed)


def test_a_mail_is_not_its_own_parent() -> None:
    assert () == thread_keys(mail(Message_ID="<1@x>", References="<1@x>"))


def test_a_reply_joins_its_parents_thread_and_merges_the_others() -> None:
    known = {"1@x": "old", "2@x": "parent", "4@x": "child"}

    assert ("parent", ("old", "child")) == choose_by_reference(["2@x", "1@x", "4@x"], known)


def test_what_was_split_by_hand_stays_apart() -> None:
    known = {"1@x": "old", "2@x": "split"}

    assert ("split", ()) == choose_by_reference(["2@x", "1@x"], known, kept_apart={"split"})


def test_without_a_known_id_there_is_no_thread() -> None:
    assert (None, ()) == choose_by_reference(["1@x"], {})


def candidate(**changes: object) -> Candidate:
    values: dict[str, object] = {
        "thread_id": "thr_1",
        "authors": frozenset((OURS,)),
        "participants": frozenset((OURS, "carol@example.org")),
        "last_date": NOON - timedelta(days=1),
    }
    return Candidate(**(values | changes))  # type: ignore[arg-type]


def choose(parsed: ParsedMessage, *candidates: Candidate) -> str | None:
    return choose_by_subject(parsed, candidates, date=NOON, own_addresses={OURS})


def test_a_reply_without_references_finds_its_thread() -> None:
    reply = mail(From="Carol@Example.org", To=OURS, Subject="Re: Invoice")

    assert "thr_1" == choose(reply, candidate())


def test_an_unknown_sender_does_not_join_a_thread_by_subject() -> None:
    stranger = mail(From="mallory@evil.example", To=OURS, Subject="Re: Invoice")

    assert choose(stranger, candidate()) is None


def test_a_new_mail_with_an_old_subject_is_a_new_thread() -> None:
    again = mail(From="carol@example.org", To=OURS, Subject="Invoice")

    assert choose(again, candidate()) is None


def test_a_reply_to_an_unknown_mail_is_not_guessed() -> None:
    other = mail(From="carol@example.org", To=OURS, Subject="Re: Invoice", In_Reply_To="<gone@x>")

    assert choose(other, candidate()) is None


def test_the_time_window_for_subjects_ends() -> None:
    reply = mail(From="carol@example.org", To=OURS, Subject="Re: Invoice")
    inside = candidate(last_date=NOON - WINDOW)
    outside = candidate(last_date=NOON - WINDOW - timedelta(seconds=1))

    assert "thr_1" == choose(reply, inside)
    assert choose(reply, outside) is None


def test_the_nearest_of_several_threads_is_chosen() -> None:
    reply = mail(From="carol@example.org", To=OURS, Subject="Re: Invoice")
    far = candidate(thread_id="thr_0", last_date=NOON - timedelta(days=9))

    assert "thr_1" == choose(reply, far, candidate())


def test_on_a_list_an_answer_to_a_writer_belongs_to_the_thread() -> None:
    thread = candidate(authors=frozenset(("dave@example.org",)))
    answer = mail(From="eve@example.org", To="dave@example.org", Subject="Re: Invoice")

    assert "thr_1" == choose(answer, thread)


def test_an_empty_subject_joins_nothing() -> None:
    assert choose(mail(From="carol@example.org", To=OURS, Subject="Re:"), candidate()) is None


@pytest.mark.parametrize("name", ["In_Reply_To", "References"])
@pytest.mark.parametrize(
    ("subject", "value", "keys"),
    [
        ("Re: Lunch", "<a@x>", ("a@x",)),
        ("Lunch", "<a@x>", ("a@x",)),
        ("Re: Lunch", "a@x", ("a@x",)),
        ("AW: Lunch", "a@x", ("a@x",)),
        ("Lunch", "a@x", ()),
        ("[PATCH 1/2] Lunch", "a@x", ()),
        ("Re: Lunch", "b@x <a@x>", ("a@x",)),
        ("Lunch", "b@x <a@x>", ("a@x",)),
    ],
)
def test_an_id_without_brackets_counts_in_what_calls_itself_a_reply(
    name: str, subject: str, value: str, keys: tuple[str, ...]
) -> None:
    assert keys == thread_keys(mail(Subject=subject, **{name: value}))


def test_of_several_references_the_first_with_an_id_counts() -> None:
    raw = b"Subject: Re: x\nReferences:\nReferences: <a@x>\nReferences: <b@x>\n\nHi"

    assert ("a@x",) == thread_keys(parse_message(raw))


def siblings(*minutes: float) -> list[Sibling]:
    """Parts of one series with references into a thread, sent so many minutes after noon."""
    return [
        Sibling(
            "series",
            f"[PATCH {n}/9] part {n}",
            has_reference=True,
            date=NOON + timedelta(minutes=m),
        )
        for n, m in enumerate(minutes, 1)
    ]


@pytest.mark.parametrize(
    ("minutes", "at", "joins"),
    [
        ((0, 1, 2), 3, True),
        ((0, 1, 2), -3, True),
        ((0, 1, 2), 31, True),
        ((0, 1, 2), 45, False),
        ((0, 1, 2), -45, False),
        ((0, 60, 120), 200, True),  # sent slowly
        ((0, 60, 120), 250, False),
        ((0, 300), 290, True),
        ((), 1, False),
    ],
)
def test_a_part_without_references_belongs_to_the_series_sent_with_it(
    minutes: tuple[float, ...], at: float, joins: bool
) -> None:
    orphan = mail(Subject="[PATCH 9/9] the last part")
    date = NOON + timedelta(minutes=at)

    found = choose_by_series(orphan, siblings(*minutes), date=date, joined=None)

    assert (("series",) if joins else ()) == found


@pytest.mark.parametrize(("at", "joins"), [(1, True), (25, True), (40, False), (-40, False)])
def test_a_part_with_references_adopts_only_orphans_sent_with_it(at: float, joins: bool) -> None:
    pointing = mail(Subject="[PATCH 1/2] first", In_Reply_To="<cover@x>")
    orphan = Sibling(
        "orphan", "[PATCH 2/2] b", has_reference=False, date=NOON + timedelta(minutes=at)
    )

    found = choose_by_series(pointing, [orphan], date=NOON, joined="series")

    assert (("orphan",) if joins else ()) == found
