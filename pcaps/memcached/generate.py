"""Makes the captures beside it: plain sockets against a real memcached on loopback, by tcpdump.

    python pcaps/memcached/generate.py [CASE ...]

Needs root (tcpdump; the server runs as `nobody`) and memcached 1.6.
"""

from __future__ import annotations

import struct
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from recording import PlainClient, cases_to_record, recording, server  # noqa: E402

PORT = 21211
USER = "nobody"


Client = partial(PlainClient, PORT)


def store(command: str, key: str, value: str, more: str = "") -> bytes:
    return f"{command} {key} 0 60 {len(value)}{more}\r\n{value}\r\n".encode()


def text() -> None:
    client = Client()
    for n in (41, 42):
        client.say(store("set", f"user:{n}", f"name {n}"))
    client.say(b"get user:42\r\n")
    client.say(b"get user:43\r\n")
    client.say(b"gets user:41 user:42 user:43\r\n")
    client.say(store("add", "user:42", "other"), store("append", "user:42", " more"))
    client.say(store("cas", "user:42", "x", " 999999"))
    client.say(store("set", "counter", "7"), b"incr counter 5\r\ndecr counter 2\r\nincr user:41 1\r\n")
    client.say(b"touch user:42 100\r\ngat 100 user:42\r\ndelete user:41\r\ndelete user:41\r\n")
    client.say(store("set", "quiet", "v", " noreply"), b"delete quiet noreply\r\nget quiet\r\n")
    client.say(store("set", "block:1", "get user:42\r\nset trap 0 0 3\r\nEND"), b"get block:1\r\n")
    client.say(store("set", "big:1", "x" * 150_000), b"get big:1\r\n", wait=0.3)
    client.say(store("set", "big:2", "x" * 1_200_000), wait=0.5)
    client.say(
        b"nonsense\r\n", b"get\r\n", b"version\r\n", b"stats\r\n", b"stats items\r\n", b"flush_all\r\n"
    )
    client.say(b"quit\r\n")


def pipeline() -> None:
    client = Client()
    client.say(b"".join(store("set", f"item:{n}", f"value {n}") for n in range(20)))
    for _ in range(4):
        client.say(*(f"get item:{n}\r\n".encode() for n in range(0, 24, 2)))


def meta() -> None:
    client = Client()
    client.say(b"ms user:42 5 T60\r\nhello\r\n", b"mg user:42 v t f\r\n", b"mg user:43 v\r\n", b"mn\r\n")
    client.say(b"mg user:42 v q k\r\nmg user:43 v q k\r\nmg user:42 s q k\r\nmn\r\n")
    client.say(b"ms user:44 2 q\r\nab\r\nmd user:42 q\r\nmn\r\n")
    client.say(b"md user:42\r\n", b"ma counter N0 J13 v\r\n", b"ma counter v\r\n", b"me counter\r\n")
    client.say(b"ms user:44 2 ME\r\nab\r\n", b"ms user:45 S3 C99\r\nabc\r\n", b"mg\r\n")


def packet(opcode: int, key: str = "", value: bytes = b"", extras: bytes = b"", opaque: int = 0) -> bytes:
    total = len(key) + len(value) + len(extras)
    head = struct.pack("!BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, total, opaque, 0)
    return head + extras + key.encode() + value


def binary() -> None:
    client = Client()
    times = struct.pack("!II", 0, 60)
    client.say(packet(0x01, "user:42", b"hello", times, 1))
    client.say(
        packet(0x00, "user:42", opaque=2),
        packet(0x00, "user:43", opaque=3),
        packet(0x0C, "user:42", opaque=4),
    )
    quiet = [packet(0x09, f"user:{n}", opaque=10 + n) for n in (41, 42, 43)]
    client.say(b"".join(quiet) + packet(0x0A, opaque=20))
    client.say(
        packet(0x11, "user:44", b"quiet", times, 21) + packet(0x14, "user:44", opaque=22) + packet(0x0A)
    )
    client.say(
        packet(0x05, "counter", b"", struct.pack("!QQI", 1, 7, 0), 30), packet(0x04, "nobody", opaque=31)
    )
    client.say(packet(0x10, opaque=40), packet(0x0B, opaque=41), packet(0x46, opaque=42))
    client.say(packet(0x01, "big:1", b"y" * 100_000, times, 50), packet(0x00, "big:1", opaque=51), wait=0.3)
    client.say(packet(0x07, opaque=60))


CASES = {"text": text, "pipeline": pipeline, "meta": meta, "binary": binary}


def main() -> None:
    for name, target in cases_to_record(__doc__, CASES, HERE):
        start = ["memcached", "-p", str(PORT), "-U", "0", "-l", "127.0.0.1", "-t", "1", "-m", "16"]
        with server(start, USER, PORT), recording(target, PORT):
            CASES[name]()


if __name__ == "__main__":
    main()
