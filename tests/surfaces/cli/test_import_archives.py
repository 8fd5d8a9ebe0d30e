"""Import from archives and mixed files: mail is stored, other files are reported."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from postroom.pipeline.transfer import mail_files
from postroom.pipeline.transfer.archives import has_mail_header
from tests.mails import mail
from tests.surfaces.cli.test_import import TO, mbox, sources

MAILS = [mail(f"Number {n}") for n in range(4)]
LONG = "a-long-folder-name/" * 12 + "new/3.eml"
FILES = {"../../etc/passwd.eml": MAILS[0], "/abs/cur/2:2,S": MAILS[1], "box.mbox": mbox(MAILS[2])}
FILES[LONG] = MAILS[3]


def tar(files: dict[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.mkdir("folder")
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


ARCHIVES = {
    "a.tar": tar(FILES),
    "gnu.tar": tar(FILES, tarfile.GNU_FORMAT),
    "a.tar.gz": gzip.compress(tar(FILES)),
    "a.tgz": gzip.compress(tar(FILES)),
    "a.tar.xz": lzma.compress(tar(FILES)),
    "a.txz": lzma.compress(tar(FILES)),
    "a.zip": zipped(FILES),
    "stored.zip": zipped(FILES, zipfile.ZIP_STORED),
    "without-a-name": zipped(FILES),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_mail_in_an_archive_is_recognised_by_its_content(postroom, data, inbox, name):
    Path(name).write_bytes(ARCHIVES[name])

    ran = postroom("import", name, *TO, "-o", "json")

    assert (0, 4, []) == (ran.code, ran.json["stored"], ran.json["problems"])
    assert MAILS == sources(data)
    assert [name] == os.listdir()


NO_MAIL = {
    "picture.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" * 50,
    "notes.txt": b"Buy milk: two litres.\n\nFrom: the shop\n",
    "page.html": b"<html><head><title>From: x</title></head></html>",
    "card.vcf": b"BEGIN:VCARD\r\nFN:Ana\r\nEND:VCARD\r\n",
    "data.json": b'{"from": "ana@example.com"}',
    "response.http": b"HTTP/1.1 200 OK\nDate: today\n\nx",
    "blank": b"\n\n  \n",
}


def test_other_files_are_reported_and_mail_is_stored(postroom, data, inbox):
    Path("mixed.zip").write_bytes(zipped({**NO_MAIL, "a.eml": MAILS[0]}))
    for name, content in NO_MAIL.items():
        Path(name).write_bytes(content)
    Path("b.eml").write_bytes(MAILS[1])

    ran = postroom("import", "mixed.zip", *NO_MAIL, "nowhere.eml", "b.eml", *TO)

    assert (10, MAILS[:2]) == (ran.code, sources(data))
    for name in NO_MAIL:
        assert f"refused: {name}: " in ran.err
        assert f"refused: mixed.zip: {name}: " in ran.err
    assert "not a mail: it has no From, Date, Subject" in ran.err
    assert "refused: nowhere.eml: No such file or directory" in ran.err
    assert "--force also imports files without a mail header" in ran.err
    assert ran.out.endswith("2 stored, 0 duplicates, 15 refused\n")


def test_force_imports_files_without_headers(postroom, data, inbox):
    Path("notes.txt").write_bytes(NO_MAIL["notes.txt"])

    refused = postroom("import", "notes.txt", *TO)
    taken = postroom("import", "notes.txt", *TO, "--force")

    assert (2, 0) == (refused.code, taken.code)
    assert [NO_MAIL["notes.txt"]] == sources(data)


@pytest.mark.parametrize(
    "raw",
    [
        b"Subject: x\n\n",
        b"subject : x\r\n\r\nbody",
        b"\xef\xbb\xbfFrom: a@b.example\n\nx",
        b"\r\n\r\nReceived: by x\r\n\r\n",
        b"From ana@example.com Fri Jan  2 03:04:05 2026\nTo: x\n\n",
        b"X-Odd: 1\rDate: today\r\rbody",
        b"X-" + b"a" * 300 + b"\nFrom: x",
    ],
)
def test_damaged_mail_is_imported(raw):
    assert has_mail_header(raw) is not raw.startswith(b"X-a")


def encrypted() -> bytes:
    """A zip whose first member says that it is encrypted."""
    whole = bytearray(zipped({"a.eml": MAILS[0], "b.eml": MAILS[1]}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        first = whole.index(b"a.eml", whole.index(mark))
        whole[whole.rindex(mark, 0, first) + offset] |= 1
    return bytes(whole)


def test_an_encrypted_member_is_named_and_the_others_are_read(postroom, data, inbox):
    Path("a.zip").write_bytes(encrypted())

    ran = postroom("import", "a.zip", *TO)

    assert (10, [MAILS[1]]) == (ran.code, sources(data))
    assert "refused: a.zip: a.eml: is encrypted; unpack the archive with its password" in ran.err


def links() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"kind{kind.decode()}.eml")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("a.eml")
        info.size = len(MAILS[0])
        archive.addfile(info, io.BytesIO(MAILS[0]))
    return out.getvalue()


def test_links_and_devices_are_not_followed(postroom, data, inbox):
    Path("a.tar").write_bytes(links())

    ran = postroom("import", "a.tar", *TO)

    assert (10, [MAILS[0]]) == (ran.code, sources(data))
    assert 4 == ran.err.count("not a regular file")


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz", "a.zip"])
@pytest.mark.parametrize("part", [0.3, 0.5])
def test_a_damaged_archive_is_reported_without_a_crash(postroom, inbox, name, part):
    whole = ARCHIVES[name]
    Path(name).write_bytes(whole[: int(len(whole) * part)])
    Path("b.eml").write_bytes(mail("Beside it"))

    ran = postroom("import", name, "b.eml", *TO)

    assert 10 == ran.code, ran
    assert f"refused: {name}" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("kind", ["xz", "gz", "zip"])
def test_a_decompression_bomb_is_stopped(postroom, data, inbox, monkeypatch, kind):
    monkeypatch.setattr(mail_files, "_MIN_EXPANDED", 1_000_000)
    monkeypatch.setattr(mail_files, "_MAX_RATIO", 10)
    bomb = {"big.eml": mail("Big") + b"\0" * 30_000_000, "a.eml": MAILS[0]}
    packed = {
        "xz": lambda: lzma.compress(tar(bomb)),
        "gz": lambda: gzip.compress(tar(bomb)),
        "zip": lambda: zipped(bomb),
    }[kind]()
    name = "bomb.zip" if kind == "zip" else f"bomb.tar.{kind}"
    Path(name).write_bytes(packed)

    ran = postroom("import", name, *TO)

    assert 2 == ran.code
    assert "it expands to far more than mail normally does" in ran.err
    assert [] == sources(data)


def test_a_single_compressed_mail_is_read(postroom, data, inbox):
    Path("a.eml.xz").write_bytes(lzma.compress(MAILS[0]))
    Path("b.eml.gz").write_bytes(gzip.compress(MAILS[1]))

    ran = postroom("import", "a.eml.xz", "b.eml.gz", *TO)

    assert (0, MAILS[:2]) == (ran.code, sources(data))
