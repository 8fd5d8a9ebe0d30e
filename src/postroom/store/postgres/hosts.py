"""The servers that one address names: whichever answered last is asked first."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroom.store.postgres.connection import connect


class Hosts:
    """Where to connect to; a first server that is dead and silent costs its time only once."""

    def __init__(self, url: str) -> None:
        self._options = conninfo_to_dict(url)
        lists = {name: _words(self._options.get(name)) for name in ("host", "hostaddr", "port")}
        self.count = max(len(lists["host"]), len(lists["hostaddr"]))
        self._lists = {name: words for name, words in lists.items() if len(words) == self.count > 1}
        self._first = 0

    @property
    def url(self) -> str:
        """The same address, beginning with the server that answered last."""
        turned = {
            name: ",".join(values[self._first :] + values[: self._first])
            for name, values in self._lists.items()
        }
        return make_conninfo("", **{**self._options, **turned})

    def connect(self) -> psycopg.Connection:
        """Connect to the first that answers, and remember which it was."""
        connection = connect(self.url)
        self.remember(connection.info)
        return connection

    def remember(self, info: psycopg.ConnectionInfo) -> None:
        """Begin with this server the next time."""
        answered = {"host": info.host, "port": str(info.port)}
        for place in range(self.count):
            known = {name: self._lists[name][place] for name in answered if name in self._lists}
            if known.items() <= answered.items():
                self._first = place
                return


def _words(value: object) -> list[str]:
    return str(value or "").split(",")
