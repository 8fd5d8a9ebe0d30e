"""Certificates for tests: our own root, and certificates that it signs."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_AUTHORITY = """
[ca]
default_ca = own
[own]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
[any]
commonName = supplied
[names]
subjectAltName = DNS:{name},IP:{address}
"""


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


def make_certificate(
    folder: Path,
    *,
    name: str = "localhost",
    address: str = "127.0.0.1",
    is_expired: bool = False,
) -> tuple[Path, Path]:
    """A self-signed certificate and its key, with a given address or expiry."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = folder / "request.pem"
    (folder / "ca.conf").write_text(_AUTHORITY.format(folder=folder, name=name, address=address))
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01\n")
    _openssl(
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
    )
    _openssl(
        *("ca", "-batch", "-selfsign", "-notext", "-config", str(folder / "ca.conf")),
        *("-extensions", "names", "-keyfile", str(key), "-in", str(request)),
        *("-startdate", "20200101000000Z", "-out", str(certificate)),
        *("-enddate", "20200201000000Z" if is_expired else "20991231000000Z"),
    )
    return certificate, key


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=120)
