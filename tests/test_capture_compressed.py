"""Compressed captures: cut anywhere, in members and frames, and what is not read."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, enhanced, interface, section, write_pcap

from tapscope import capture
from tapscope.store.errors import TapscopeError

ASK = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
NEEDS_ZSTD = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")


def packets() -> list[Packet]:
    dialogue = Dialogue().open()
    for _ in range(40):
        dialogue.send(CLIENT, ASK).send(SERVER, EMPTY)
    return dialogue.close().packets


def flushed_gzip(data: bytes) -> bytes:
    """All of it, but not the end: as a writer that flushes each packet leaves it when it is killed."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


def cut_xz(data: bytes) -> bytes:
    """Without the index and the footer that end a stream."""
    return lzma.compress(data)[:-24]


def zstd(data: bytes, *options: str) -> bytes:
    return subprocess.run(
        ["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True
    ).stdout


def cut_zstd(data: bytes) -> bytes:
    """Without the checksum that ends a frame."""
    return zstd(data, "--check")[:-4]


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
@pytest.mark.parametrize("cut", [flushed_gzip, cut_xz, pytest.param(cut_zstd, marks=NEEDS_ZSTD)])
def test_data_that_are_cut_between_two_packets_are_told(
    cut: Callable[[bytes], bytes], form: str, tmp_path: Path
) -> None:
    if form == "pcap":
        plain = write_pcap(tmp_path / "a.pcap", packets()).read_bytes()
    else:
        plain = section() + interface(resolution=9)
        plain += b"".join(enhanced(frame, time_ns) for time_ns, frame in packets())
    path = tmp_path / "cut"
    path.write_bytes(cut(plain))
    tables = capture.read_files([path])
    assert tables.counter("source.truncated_file") == 1
    assert "the compressed data are cut" in tables.sources[0]["warning"]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, pytest.param(zstd, marks=NEEDS_ZSTD)])
def test_whole_data_are_not_called_cut(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    plain = write_pcap(tmp_path / "a.pcap", packets()).read_bytes()
    path = tmp_path / "whole"
    for parts in ([plain], [plain[:50], plain[50:]]):  # members, streams, frames may follow one another
        path.write_bytes(b"".join(pack(part) for part in parts))
        tables = capture.read_files([path])
        assert tables.counter("source.truncated_file") == 0
        assert tables.sources[0]["packets"] == len(packets())


@NEEDS_ZSTD
def test_a_frame_to_be_skipped_may_come_first(tmp_path: Path) -> None:
    """pzstd writes the sizes of its frames into such ones (RFC 8878, section 3.1.2)."""
    plain = write_pcap(tmp_path / "a.pcap", packets()).read_bytes()
    path = tmp_path / "a.pcap.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd(plain))
    assert capture.read_files([path]).sources[0]["packets"] == len(packets())


@NEEDS_ZSTD
def test_a_window_that_takes_too_much_memory_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap.zst"
    # Magic; descriptor: no content size; window: 2^31 bytes; one raw last block of nothing.
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([21 << 3]) + b"\x01\x00\x00")
    with pytest.raises(TapscopeError, match=r"window above 128 MB.*--long=31"):
        capture.read_files([path])
