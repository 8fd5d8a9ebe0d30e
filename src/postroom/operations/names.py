"""Names of labels and mailboxes, as a caller may give them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from postroom.operations import forms
from postroom.operations.request import Accepts


def _label(name: str) -> str:
    if not re.fullmatch(forms.NAME, name):
        raise ValueError("a label is 1 to 128 characters on one line, and one can see it")
    return name


LabelName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    AfterValidator(_label),
    Accepts({"pattern": forms.NAME}),
]
MailboxName = Annotated[
    str, Field(min_length=1, max_length=256, pattern=forms.MAILBOX_NAME), AfterValidator(str)
]
