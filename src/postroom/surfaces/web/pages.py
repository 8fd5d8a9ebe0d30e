"""The table of pages and forms: one section per subject, in the order of the navigation."""

from __future__ import annotations

from postroom.surfaces.web import (
    accounts,
    audit,
    authorize,
    connect,
    events,
    health,
    keys,
    memories,
    outgoing,
    overview,
    signing_in,
    webhooks,
)
from postroom.surfaces.web.mail import pages as mail
from postroom.surfaces.web.page import Section
from postroom.surfaces.web.rules import pages as rules

SECTIONS: tuple[Section, ...] = (
    overview.SECTION,
    mail.SECTION,
    outgoing.SECTION,
    rules.SECTION,
    memories.SECTION,
    accounts.SECTION,
    keys.SECTION,
    webhooks.SECTION,
    connect.SECTION,
    events.SECTION,
    audit.SECTION,
    health.SECTION,
    authorize.SECTION,
    signing_in.SECTION,
)

NOTICES = {name: words for section in SECTIONS for name, words in section.notices.items()}
LINKS = tuple(link for section in SECTIONS for link in section.links)
