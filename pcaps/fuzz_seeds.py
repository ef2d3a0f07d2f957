"""Turns captures into seeds of the dissectors' fuzz targets: capture/fuzz/seeds/NAME/connectionN.

    python pcaps/fuzz_seeds.py NAME CAPTURE ...

One file per connection, of at most 4 kB: for each segment a byte with the direction, two bytes of length
(little endian) and the payload, as capture/fuzz/exchange.hpp reads them.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

MOST_BYTES = 4096
MOST_FILES = 40


def connections(path: Path) -> list[bytes]:
    """The segments of every TCP connection of a little endian .pcap(.gz) of Ethernet and IPv4."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    found: dict[tuple[bytes, ...], tuple[bytes, bytearray]] = {}
    at = 24
    while at + 16 <= len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frame = data[at + 16 : at + 16 + size]
        at += 16 + size
        tcp = 14 + (frame[14] & 15) * 4
        end = 14 + struct.unpack_from("!H", frame, 16)[0]
        source, target = frame[26:30] + frame[tcp : tcp + 2], frame[30:34] + frame[tcp + 2 : tcp + 4]
        payload = frame[tcp + (frame[tcp + 12] >> 4) * 4 : end]
        client, out = found.setdefault(tuple(sorted((source, target))), (source, bytearray()))
        for part in range(0, len(payload), 4095):
            piece = payload[part : part + 4095]
            out += struct.pack("<BH", source != client, len(piece)) + piece
    return [bytes(out[:MOST_BYTES]) for _, out in found.values() if out]


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder = Path(__file__).resolve().parent.parent / "capture/fuzz/seeds" / sys.argv[1]
    folder.mkdir(parents=True, exist_ok=True)
    seeds = sorted({seed for name in sys.argv[2:] for seed in connections(Path(name))}, key=len)
    for number, seed in enumerate(seeds[:MOST_FILES]):
        (folder / f"connection{number}").write_bytes(seed)
    print(f"{min(len(seeds), MOST_FILES)} seeds in {folder}")


if __name__ == "__main__":
    main()
