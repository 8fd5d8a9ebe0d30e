"""Attributions in all languages, orders and wrappings, below any text of the writer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.quoting import Reply, split_reply
from tests.unit.mail.attributions import SENTENCES, attributions, wrapped

ALL = dict(attributions())
BODIES = ("> Old words\n> more", "Old words\n\nmore")
TORN = (
    "On Mon, 4 Oct 2021 at 08:15\n\nMara Holm\n\n<\n\nm@fjord.example\n\n> wrote:",
    "Am 4. Okt. 2021 um 08:15\n\nMara Holm\n<\nmailto:m@fjord.example\n> schrieb:",
    "Den 4 okt. 2021 kl 08:15\n\nMara Holm\n\n<\nmailto:m@fjord.example>\n\n> skrev:",
)
SPARSE = (
    "Mara Holm <m@fjord.example> writes:",
    "2021-05-07T08:15+02 Mara Holm",
    "2021-05-07 08:15 GMT+02:00 Mara Holm",
    "07.05.2021 08:15 UTC-3 Mara Holm",
    "5/11/2021 Mara Holm <m@fjord.example>",
    "2021/5/11 Mara Holm <m@fjord.example>",
)


def squeezed(reply: Reply) -> str:
    return "".join((reply.new_text + reply.signature).split())


def is_split_name(attribution: str) -> bool:
    """A name alone on a line above a name may also be a signature."""
    return attribution.split("\n", maxsplit=1)[0] in ("Mara", "Marianne")


@given(
    name=st.sampled_from(sorted(ALL)),
    at=st.integers(0, 30),
    sentence=st.sampled_from(SENTENCES),
    gap=st.sampled_from(("\n\n", "\n")),
    body=st.sampled_from(BODIES),
)
def test_an_attribution_begins_where_the_writers_words_end(
    name: str, at: int, sentence: str, gap: str, body: str
) -> None:
    forms = [form for form in wrapped(ALL[name]) if not is_split_name(form)]

    reply = split_reply(f"{sentence}{gap}{forms[at % len(forms)]}\n\n{body}")

    assert "".join(sentence.split()) == squeezed(reply)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_wrapped_name_removes_no_word_of_the_writer(sentence: str) -> None:
    for name in sorted(ALL):
        for form in filter(is_split_name, wrapped(ALL[name])):
            reply = split_reply(f"{sentence}\n{form}\n\n{BODIES[0]}")

            assert squeezed(reply).startswith("".join(sentence.split())), name


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("attribution", [*TORN, *SPARSE])
def test_incomplete_attributions_need_no_quote_marks(attribution: str, sentence: str) -> None:
    reply = split_reply(f"{sentence}\n\n{attribution}\n\nOld words\n\nmore")

    assert "".join(sentence.split()) == squeezed(reply)


@pytest.mark.parametrize(
    "text",
    [
        "On Tuesday 4 May 2021 we wrote:\nnothing at all.",
        "Please write to ada@isle.example:\n\nthe number is 12.",
        "The log:\n\n2021-05-07 08:15:11 server started\n2021-05-07 08:15:12 ready\n\nWhat now?",
        "My trip:\n\nFrom: Berlin\nTo: Paris\nDate: 12 May\n\nSee you.",
        "I met Mara on 4 October 2021 and she said:\n\nbring the keys.",
        "Fine.\n\n2021-05-07\n\nis the day.",
    ],
)
def test_words_that_only_look_like_an_attribution_stay(text: str) -> None:
    assert text == split_reply(text).new_text


@pytest.mark.parametrize(
    "said",
    [
        "Mara Holm, Sat, Jun 09, 2007 19:55:10 +0200:",
        "Excerpts from Mara Holm's message of Tue Jan 12 13:29:41 -0500 2010:",
        "2021-05-06 21:05 GMT+02:00 Mara Holm:",
        "2021-05-06T21:05:11+02:00 Mara Holm",
        "06.05.2021 21:05 UTC+2 Mara Holm:",
        "Mara Holm @ 2021-05-06 21:05 CEST:",
    ],
)
@pytest.mark.parametrize("own", ["", "I agree.\n\n", "See you at 10:30, on Sat 12.\n\n"])
def test_a_date_with_its_zone_and_a_name_above_a_quotation_belong_to_it(
    said: str, own: str
) -> None:
    reply = split_reply(f"{own}{said}\n> Old words\n> more\n\nFine by me.")

    assert f"{own}Fine by me." == reply.new_text
    assert said in reply.quoted_text


@pytest.mark.parametrize(
    "own",
    [
        "The build of 2021-05-06 21:05 +0200 fails with this output:",
        "My train leaves at 10:30 UTC on 2021-05-06, see the plan:",
        "We meet again on Sat 12 at 10:30.",
        "see line 12:30 -5 of the file:",
    ],
)
def test_a_sentence_with_a_date_above_a_quotation_stays(own: str) -> None:
    assert own == split_reply(f"{own}\n> Old words\n> more").new_text


@pytest.mark.parametrize(
    ("before", "after"), [("\u202b", "\u202c"), ("\u200f", "\u200f"), ("\u202a", "")]
)
@pytest.mark.parametrize("old", BODIES)
def test_bidi_marks_around_an_attribution_are_part_of_it(before: str, after: str, old: str) -> None:
    said = f"{before}2021-05-06 21:05 GMT+2 Mara Holm <m@x.example>{after}:{after}"

    assert "I agree." == split_reply(f"I agree.\n\n{said}\n\n{old}").new_text
