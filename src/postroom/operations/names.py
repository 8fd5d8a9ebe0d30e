"""Names of labels and mailboxes, as a caller may give them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from postroom.operations import forms
from postroom.operations.request import Accepts


def _label(name: str) -> str:
    if not re.fullmatch(forms.NAME, name):
        raise ValueError("a label is 1 to 128 characters on one line, not only spaces")
    return name


LabelName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    AfterValidator(_label),
    Accepts({"pattern": forms.NAME}),
]
MailboxName = Annotated[
    str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$"), AfterValidator(str)
]
