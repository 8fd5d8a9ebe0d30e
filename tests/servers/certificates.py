"""Certificates for tests: a root of our own, and what it signs."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key, which signs itself."""

    cert: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context


def certificate(folder: Path, name: str = "localhost", *more: str, days: int = 2) -> Certificate:
    """Make a certificate for some names, and for 127.0.0.1 if the first is localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    names = ",".join(f"DNS:{each}" for each in (name, *more))
    names += ",IP:127.0.0.1" if name == "localhost" else ""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", str(days), "-subj", f"/CN={name}", "-addext",
         f"subjectAltName={names}", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return Certificate(cert, key)
