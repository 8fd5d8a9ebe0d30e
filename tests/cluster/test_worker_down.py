"""While a worker is down, its inboxes say so at once, and all others go on."""

from __future__ import annotations

import smtplib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
import pytest

from tests.faults.drilled import Server, server
from tests.mails import mail
from tests.servers.citus import Cluster

WHERE = """
    SELECT i.address, i.id FROM inboxes i
      JOIN pg_dist_placement p
        ON p.shardid = get_shard_id_for_distribution_column('messages', i.number)
      JOIN pg_dist_node n ON n.groupid = p.groupid AND n.nodeport = %s ORDER BY i.number LIMIT 1
"""
SOON_S = 30


class Answer(NamedTuple):
    status: int
    retry_after: str | None


class Place(NamedTuple):
    """An inbox, and the server that it is at."""

    services: Server
    address: str
    id: str

    def read(self) -> Answer:
        return self._ask("GET", f"/v1/messages?inbox_id={self.id}")

    def deliver(self) -> Answer:
        return self._ask("POST", f"/v1/inbound?recipient={self.address}", mail(to=self.address))

    def submit(self) -> int:
        """The reply to a mail over SMTP."""
        with smtplib.SMTP("127.0.0.1", self.services.smtp, timeout=SOON_S) as smtp:
            try:
                raw = mail(to=self.address).replace(b"\n", b"\r\n")
                smtp.sendmail("a@example.com", [self.address], raw)
            except smtplib.SMTPRecipientsRefused as refused:
                return next(iter(refused.recipients.values()))[0]
            except smtplib.SMTPResponseException as refused:
                return refused.smtp_code
        return 250

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        login = {"Authorization": f"Bearer {self.services.key}", "Content-Type": "message/rfc822"}
        url = f"http://127.0.0.1:{self.services.port}{path}"
        request = urllib.request.Request(url, data=body, method=method, headers=login)
        try:
            with urllib.request.urlopen(request, timeout=SOON_S) as response:
                return Answer(response.status, None)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers.get("Retry-After"))


@pytest.fixture
def places(cluster: Cluster) -> Iterator[tuple[Place, Place]]:
    """An inbox on each of the workers."""
    url = cluster.new_database()
    with server("none", 1, POSTROOM_DATABASE_URL=url) as services:
        for n in range(8):
            services.ask("POST", "/v1/inboxes", {"username": f"box{n}"})
        with psycopg.connect(url) as connection:
            rows = [connection.execute(WHERE, [w.port]).fetchone() for w in cluster.workers]
        first, second = (Place(services, *row) for row in rows if row)
        yield first, second
    cluster.drop(url)


def test_the_inboxes_of_a_worker_that_is_down_answer_503_and_all_others_go_on(
    cluster: Cluster, places: tuple[Place, Place]
) -> None:
    down, up = places
    before = [place.deliver().status for place in places]
    cluster.workers[0].control("stop", "-m", "immediate")
    try:
        refused = [down.deliver(), down.read()]
        over_smtp = [down.submit(), up.submit()]
        others = up.read().status
    finally:
        cluster.workers[0].control("start")
    after = _until(down, 201)

    assert [201, 201] == before
    assert [503, 503] == [answer.status for answer in refused]
    assert all(answer.retry_after for answer in refused)
    assert [451, 250] == over_smtp
    assert 200 == others
    assert 201 == after


def _until(place: Place, status: int) -> int:
    """Deliver until the answer is this, or for some time."""
    deadline = time.monotonic() + SOON_S
    while (answer := place.deliver()).status != status and time.monotonic() < deadline:
        time.sleep(float(answer.retry_after or 1))
    return answer.status
