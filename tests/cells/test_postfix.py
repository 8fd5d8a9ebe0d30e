"""One Postfix in front of all cells delivers each mail to the cell of its domain."""

from __future__ import annotations

import smtplib
from collections.abc import Sequence

from tests.faults.cells import until
from tests.mails import mail
from tests.servers.cells import Cell
from tests.servers.ports import free_port
from tests.servers.postfix import postfix

SUBJECTS = "SELECT subject FROM messages"


def subjects(cell: Cell) -> set[object]:
    return {row[0] for row in cell.rows(SUBJECTS)}


def test_a_postfix_with_a_transport_map_delivers_to_each_cell(two_cells: list[Cell]) -> None:
    first, second = two_cells
    with postfix(free_port(), {cell.domain: cell.smtp for cell in two_cells}) as port:
        with smtplib.SMTP("127.0.0.1", port, timeout=60) as session:
            send(session, "One", [first])
            send(session, "Both", two_cells)
            until(lambda: "Both" in subjects(first) & subjects(second) and "One" in subjects(first))
            delivered = [subjects(cell) for cell in two_cells]
            second.kill()
            send(session, "While one is down", two_cells)
            until(lambda: "While one is down" in subjects(first))
        second.start()

    assert [{"One", "Both"}, {"Both"}] == delivered
    assert {"One", "Both", "While one is down"} == subjects(first)


def send(session: smtplib.SMTP, subject: str, to: Sequence[Cell]) -> None:
    session.sendmail("ana@example.com", [f"bo@{cell.domain}" for cell in to], mail(subject))
