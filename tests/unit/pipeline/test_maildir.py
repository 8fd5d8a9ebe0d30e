"""Maildir names: parsed as other programs write them, and written so that they parse back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.model.inbox import standard_mailbox
from postroom.model.mail.message import FLAGS
from postroom.pipeline.transfer.mail_files import (
    flags_in,
    folder_for,
    info_for,
    is_trashed,
    mailbox_in,
)

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("filename", "flags"),
    [
        ("1700000000.M1.host:2,FRS", ("seen", "flagged", "answered")),
        ("1700000000.M1.host:2,", ()),
        ("1700000000.M1.host", ()),
        ("1700000000.M1.host!2,S", ("seen",)),
        ("1700000000.M1.host:2,PSa", ("seen",)),
        ("1700000000.M1.host:1,S", ()),
    ],
)
def test_flags_are_read_from_the_name(filename, flags):
    assert flags == flags_in(filename)


def test_trashed_mail_is_recognised():
    assert (True, False) == (is_trashed("1:2,ST"), is_trashed("T:2,S"))


@given(st.sets(st.sampled_from(FLAGS)))
def test_flags_read_back_as_they_were_written(flags):
    assert flags == set(flags_in("name" + info_for(sorted(flags))))


@pytest.mark.parametrize(
    ("folders", "mailbox"),
    [
        ((".Sent",), "Sent"),
        ((".sent",), "Sent"),
        ((".Junk E-mail",), "Junk"),
        ((".[Gmail].Trash",), "Trash"),
        (("[Google Mail]", "Bin"), "Trash"),
        ((".Outbox",), "Drafts"),
        ((".Work.Clients",), "Work/Clients"),
        (("Work", "Clients"), "Work/Clients"),
        ((".Entw&APw-rfe",), "Entwürfe"),
        ((".R&-D",), "R&D"),
        ((".broken &x",), "broken &x"),
        ((".broken &!!!-",), "broken &!!!-"),
        ((), ""),
    ],
)
def test_mailboxes_are_read_from_folders(folders, mailbox):
    assert mailbox == mailbox_in(folders)


@given(NAMES)
def test_a_mailbox_reads_back_as_it_was_written(name):
    folder = folder_for(name)

    assert "/" not in folder
    assert folder.isascii()
    assert standard_mailbox(name) or name.lower() == mailbox_in([folder]).lower()
