"""Memory of the engine per connection, measured in a child process: open ones, and ones that come and go."""

import json
import struct
import subprocess
import sys
from pathlib import Path

SYN, ACK, FIN, PSH = 2, 16, 1, 8
START_NS = 1_700_000_000 * 10**9
REQUEST = b"GET /story?id=%d HTTP/1.1\r\nHost: example.org\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

# Prints the bytes that reading a capture added to the process at its peak, without those of the tables.
WATCHED = """
import json, re, sys
from tapscope import capture
def resident(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = resident("VmRSS")
tables = capture.read_files([sys.argv[1]])
rows = sum(c.nbytes for t in (tables.connections, tables.messages, tables.evidence) for c in t.values())
print(json.dumps({"state": resident("VmHWM") - before - rows, "messages": len(tables.messages["conn"]),
                  "connections": len(tables.connections["protocol"])}))
"""


class Writer:
    """A classic pcap file of TCP packets between made-up hosts."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))

    def packet(self, at_ns: int, conn: int, side: int, flags: int, seq: int, ack: int, data: bytes) -> None:
        client = (struct.pack("!I", 0x0A000000 + conn // 50_000), 10_000 + conn % 50_000)
        ends = [client, (b"\x0a\x01\x00\x01", 80)]
        (source, source_port), (target, target_port) = ends[side], ends[1 - side]
        frame = (
            b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0"
            + struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0, 64, 6, 0)
            + source
            + target
            + struct.pack("!HHIIBBHHH", source_port, target_port, seq, ack, 0x50, flags, 500, 0, 0)
            + data
        )
        seconds, fraction = divmod(at_ns, 10**9)
        self.file.write(struct.pack("<IIII", seconds, fraction, len(frame), len(frame)) + frame)

    def handshake(self, at_ns: int, conn: int) -> None:
        self.packet(at_ns, conn, 0, SYN, 99, 0, b"")
        self.packet(at_ns, conn, 1, SYN | ACK, 199, 100, b"")
        self.packet(at_ns, conn, 0, ACK, 100, 200, b"")

    def exchange(self, at_ns: int, conn: int) -> None:
        request = REQUEST % conn
        self.packet(at_ns, conn, 0, PSH | ACK, 100, 200, request)
        self.packet(at_ns, conn, 1, PSH | ACK, 200, 100 + len(request), ANSWER)

    def close(self, at_ns: int, conn: int) -> None:
        there, back = 100 + len(REQUEST % conn), 200 + len(ANSWER)
        self.packet(at_ns, conn, 0, FIN | ACK, there, back, b"")
        self.packet(at_ns, conn, 1, FIN | ACK, back, there + 1, b"")
        self.packet(at_ns, conn, 0, ACK, there + 1, back + 1, b"")


def watch(path: Path) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    path.unlink()
    return found


def opened(path: Path, count: int, exchange: bool) -> dict[str, int]:
    """`count` connections that stay open."""
    writer = Writer(path)
    for conn in range(count):
        writer.handshake(START_NS + conn * 20_000, conn)
        if exchange:
            writer.exchange(START_NS + conn * 20_000 + 5_000, conn)
    writer.file.close()
    found = watch(path)
    assert found["connections"] == count
    assert found["messages"] == (2 * count if exchange else 0)
    return found


def test_an_open_connection_with_an_exchange_takes_less_than_a_kilobyte(tmp_path):
    few, many = (opened(tmp_path / "x.pcap", n, exchange=True)["state"] for n in (20_000, 80_000))
    assert (many - few) / 60_000 < 1000


def test_an_idle_connection_takes_less_than_half_of_that(tmp_path):
    few, many = (opened(tmp_path / "x.pcap", n, exchange=False)["state"] for n in (20_000, 80_000))
    assert (many - few) / 60_000 < 500


def churned(path: Path, count: int) -> int:
    """10,000 new connections a second, each closed after its exchange."""
    writer = Writer(path)
    for conn in range(count):
        at_ns = START_NS + conn * 100_000
        writer.handshake(at_ns, conn)
        writer.exchange(at_ns + 10_000, conn)
        writer.close(at_ns + 20_000, conn)
    writer.file.close()
    found = watch(path)
    assert found["connections"] == count
    return found["state"]


def test_connections_that_come_and_go_leave_nothing_but_their_rows(tmp_path):
    few, many = (churned(tmp_path / "x.pcap", n) for n in (40_000, 120_000))
    # Columns that double round up; nothing else may grow with the number of connections.
    assert many - few < 16 * 2**20
