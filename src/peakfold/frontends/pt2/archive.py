"""The zip container of a ``.pt2`` file: the few members that describe a program, and no other.

Weights, sample inputs and whatever else lies in the archive are never opened. The container is
bounded before anything is read: the directory, each member, how far a member may inflate.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from peakfold.boundary import foreign
from peakfold.errors import ModelError, UsageError

MAX_DIRECTORY = 2**23
"""Bytes of the list of members: some 100,000 of them."""
MAX_MEMBER = 2**27
"""Bytes of all that is read, inflated. A program of 10,000 operators takes about 30 MB."""
MAX_RATIO = 100
"""How many times larger than in the file a member may be; small ones may be larger still."""
SMALL = 2**20
TRUST = "--trust lets PyTorch's own loader read it, which runs code of the file"

_MODEL = re.compile(r"models/([^/]+)\.json")
_OLD = "serialized_exported_program.json"
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class Members:
    """What an archive says of its program.

    Attributes:
        program: JSON of the exported program.
        weights, constants: JSON of where parameters, buffers and constants lie; empty in files
            of PyTorch before 2.8.
        sizes: bytes of the other members, by name without the archive's own folder.
    """

    program: bytes
    weights: bytes
    constants: bytes
    sizes: Mapping[str, int]


def read_archive(path: Path) -> Members:
    """The members that describe a program, read from a ``.pt2`` file.

    Both layouts that PyTorch 2.13 knows are read: that of ``torch.export.save`` since 2.8
    (``models/model.json``), and the older one with ``serialized_exported_program.json``.

    Raises:
        UsageError: no regular file, or it cannot be opened.
        ModelError: no zip file, no exported program, several of them, members that are listed
            twice, or more bytes than a program has.
    """
    where = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError("it is no regular file", where=where)
        stream = path.open("rb")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be read: {said}", where=where) from None
    with stream, foreign("no exported program", where), zipfile.ZipFile(_Bounded(stream)) as file:
        return _members(file)


class _Bounded(io.BufferedIOBase):
    """A file of which no more than a directory's bytes are read at once."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None else size
        if wanted > MAX_DIRECTORY:
            raise ModelError(f"its list of members has {wanted} bytes")
        found = self._stream.read(MAX_DIRECTORY + 1 if wanted < 0 else wanted)
        if len(found) > MAX_DIRECTORY:
            raise ModelError("it is no zip file")
        return bytes(found)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True


def _members(file: zipfile.ZipFile) -> Members:
    listed: dict[str, zipfile.ZipInfo] = {}
    twice: set[str] = set()
    for info in file.infolist():
        if info.filename in listed:
            twice.add(info.filename)
        listed[info.filename] = info
    root = _root(listed)

    def read(name: str) -> bytes:
        whole = f"{root}{name}"
        if whole in twice:
            raise ModelError(f"member {name!r} is there twice")
        return _content(file, listed[whole]) if whole in listed else b""

    inner = {name.removeprefix(root): info.file_size for name, info in listed.items()}
    if _OLD in inner:
        return Members(read(_OLD), b"", b"", {})
    if read("archive_format") != b"pt2":
        raise ModelError("no exported program: its format is not pt2")
    if (version := read("archive_version")) != b"0":
        shown = version[:20].decode("ascii", "replace")
        raise ModelError(f"its archive version is {shown!r}, known is '0'", hint=TRUST)
    model = _model(inner)
    names = (
        f"models/{model}.json",
        f"data/weights/{model}_weights_config.json",
        f"data/constants/{model}_constants_config.json",
    )
    if (whole := sum(inner.get(name, 0) for name in names)) > MAX_MEMBER:
        raise ModelError(f"its program has {whole} bytes; at most {MAX_MEMBER} are read")
    program, weights, constants = map(read, names)
    return Members(program, weights, constants, inner)


def _root(listed: Mapping[str, zipfile.ZipInfo]) -> str:
    """The folder that everything lies in, as PyTorch writes it; empty for the old layout."""
    first = next(iter(listed), "")
    root = first.partition("/")[0] + "/"
    return root if f"{root}archive_format" in listed else ""


def _model(names: Mapping[str, int]) -> str:
    found = sorted(match[1] for name in names if (match := _MODEL.fullmatch(name)))
    if not found:
        raise ModelError(
            "it holds no exported program", hint="compiled packages (AOTInductor) hold none"
        )
    if len(found) > 1 and "model" not in found:
        raise ModelError(f"it holds {len(found)} programs, none of them called 'model'")
    return "model" if "model" in found else found[0]


def _content(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member, inflated up to what is allowed."""
    name, size = info.filename, info.file_size
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelError(f"member {name!r} is compressed in a way that is not read")
    if info.flag_bits & _ENCRYPTED:
        raise ModelError(f"member {name!r} is encrypted")
    if size > MAX_MEMBER:
        raise ModelError(f"member {name!r} has {size} bytes; at most {MAX_MEMBER} are read")
    if size > max(SMALL, MAX_RATIO * info.compress_size):
        raise ModelError(f"member {name!r} inflates to {size} bytes, {MAX_RATIO} times and more")
    found = bytearray()
    with file.open(info) as stream:
        while part := stream.read(SMALL):
            found += part
            if len(found) > size:
                break
    if len(found) != size:
        raise ModelError(f"member {name!r} has not the {size} bytes that are stated")
    return bytes(found)
