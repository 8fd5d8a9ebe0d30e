"""Cyrus on loopback with JMAP: mail and submission, but no push. It starts only as root."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from tests.servers.cyrus import CyrusMaster

_SETTINGS = """expunge_mode: delayed
httpmodules: jmap
httpprettytelemetry: no
conversations: yes
jmap_nonstandard_extensions: no
smtp_backend: host
smtp_host: 127.0.0.1:{smtp}
"""


@dataclass
class JmapServer(CyrusMaster):
    """Cyrus with JMAP; it submits mail to *smtp*."""

    smtp: int = 25

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self) -> str:
        return _SETTINGS.format(smtp=self.smtp)

    def service(self, programs: str) -> tuple[str, str]:
        return "http", "/usr/lib/cyrus/bin/httpd"

    def wait(self) -> None:
        super().wait()
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.url}/jmap/", timeout=30).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("Cyrus does not answer over HTTP")
