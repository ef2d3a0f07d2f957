"""DPDK without a network card: by virtual devices, against the same packets read by libpcap."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_program import wait_for
from live_network import environment, network, stop
from test_capture_accounting import records, write
from test_capture_live import messages

from tapscope.capture import read_files, read_spool
from tapscope.capture.dpdk import eal_arguments

PCAPS = Path(__file__).parent.parent / "pcaps"
CAPTURES = ["http_ajp_mysql_groundtruth.pcap", "mediawiki_http_mysql.pcap", "mysql_prepared_mariadb_j.pcap"]

READ = """
import json, sys
from tapscope.capture import capture_live
tables = capture_live(sys.argv[1], seconds=60, packets=int(sys.argv[2]), salt=bytes(16))
columns = {name: values.tolist() for name, values in tables.messages.items()}
print(json.dumps([columns, [list(c) for c in tables.classes], tables.sources[0]]))
"""

SEND = """
import socket, sys, time
sys.path.insert(0, sys.argv[3])
from test_capture_accounting import records
link, packets = records(__import__("pathlib").Path(sys.argv[2]))
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
for number, (at, data, length) in enumerate(packets):
    out.send(data)
    if number % 50 == 49:
        time.sleep(0.002)
"""


def plain(tables):
    return {name: values.tolist() for name, values in tables.messages.items()}


def places(tables) -> list[tuple[int, ...]]:
    """Messages by connection and sequence number: what each is, and where the one that it answers stands."""
    table = tables.messages
    ports = tables.connections["client_port"][table["conn"]]
    words = ("kind", "protocol", "wire_bytes", "missing_bytes", "status")
    place = list(zip(ports.tolist(), table["direction"].tolist(), table["tcp_seq"].tolist(), strict=True))
    answered = [place[row] if row >= 0 else (-1, -1, -1) for row in table["request"]]
    what = zip(*(table[name].tolist() for name in words), strict=True)
    return sorted((*at, *rest, *to) for at, rest, to in zip(place, what, answered, strict=True))


def by_dpdk(device: str, packets: int) -> tuple[dict, list, dict]:
    """In a process of its own: DPDK can be set up once in each."""
    done = subprocess.run(
        [sys.executable, "-c", READ, f"dpdk:{device}", str(packets)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    columns, classes, source = json.loads(done.stdout)
    return columns, [tuple(entry) for entry in classes], source


@pytest.mark.parametrize("name", CAPTURES)
def test_a_file_through_dpdk_gives_the_same_messages_at_the_same_times(name: str) -> None:
    expected = read_files([PCAPS / name], salt=bytes(16))
    packets = expected.counter("packets")
    columns, classes, source = by_dpdk(f"net_pcap0,rx_pcap={PCAPS / name}", packets)
    assert source["packets"] == packets
    assert source["dropped_by_kernel"] == source["dropped_by_interface"] == 0
    assert "by the driver" in source["ts_resolution"]
    assert classes == expected.classes
    assert columns == plain(expected)


def test_queues_that_threads_empty_give_the_messages_of_their_packets(tmp_path: Path) -> None:
    """Each queue has whole connections, as RSS fills them."""
    link, packets = records(PCAPS / CAPTURES[0])
    queues: list[list] = [[], [], []]
    for packet in packets:
        ports = int.from_bytes(packet[1][34:36], "big") + int.from_bytes(packet[1][36:38], "big")
        queues[ports % 3].append(packet)
    assert all(len(queue) > 100 for queue in queues)
    files = [write(tmp_path / f"{n}.pcap", link, queue) for n, queue in enumerate(queues)]
    device = ",".join(["dpdk:net_pcap0", *(f"rx_pcap={file}" for file in files)])
    words = ["-i", device, "--queues", "3", "--spool", tmp_path / "x.spool", "-c", str(len(packets))]
    done = subprocess.run(
        [sys.executable, "-m", "tapscope", "capture", "--json", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packets"] == len(packets)
    assert messages(read_spool([tmp_path / "x.spool"])) == messages(read_files([PCAPS / CAPTURES[0]]))


def test_packets_of_an_interface_through_dpdk_are_those_that_libpcap_sees(tmp_path: Path) -> None:
    """The same traffic on one interface, seen by all at once."""
    link, packets = records(PCAPS / "http_ajp_mysql_groundtruth.pcap")
    frames = [packet for packet in packets if len(packet[1]) <= 1514]  # longer ones do not fit the wire
    file = write(tmp_path / "sent.pcap", link, frames)
    with network() as net:
        dpdk = net.capture_on("dpdk:net_af_packet0,iface=tap0", "--spool", tmp_path / "dpdk.spool", "--json")
        words = ["--queues", "2", "--spool", tmp_path / "two.spool", "--json"]
        two = net.capture_on("dpdk:net_af_packet0,iface=tap0", *words)
        pcap = net.capture_on("tap0", "--spool", tmp_path / "pcap.spool", "--json")
        for name in ("dpdk", "two", "pcap"):
            wait_for(lambda name=name: (tmp_path / f"{name}.spool/manifest.json").exists())
        time.sleep(0.5)
        words = [sys.executable, "-c", SEND, "tap1", str(file), str(Path(__file__).parent)]
        sender = net.start(net.client_space, *words)
        assert sender.wait(timeout=60) == 0
        time.sleep(0.5)
        records_by = {}
        for name, process in (("dpdk", dpdk), ("two", two), ("pcap", pcap)):
            out, errors = stop(process)
            assert process.returncode == 0, errors
            records_by[name] = json.loads(out)
    for name in ("dpdk", "two"):
        assert records_by[name]["dropped_by_kernel"] == records_by[name]["dropped_by_interface"] == 0
    one, other = read_spool(tmp_path / "dpdk.spool"), read_spool(tmp_path / "pcap.spool")
    assert len(one.messages["kind"]) > 100
    exact = ("direction", "protocol", "kind", "wire_bytes", "missing_bytes", "status", "tcp_seq", "request")
    for column in exact:
        assert one.messages[column].tolist() == other.messages[column].tolist(), column
    text = [[t.classes[c] if c >= 0 else None for c in t.messages["class_id"]] for t in (one, other)]
    assert text[0] == text[1]
    shared, whole = places(read_spool(tmp_path / "two.spool")), places(other)
    assert shared == whole


def test_a_virtual_device_gets_a_ring_that_loses_nothing() -> None:
    eal, interface = eal_arguments("net_af_packet0,iface=eth1")
    assert interface == "eth1"
    assert "--vdev=net_af_packet0,blocksz=1048576,framesz=2048,framecnt=65536,iface=eth1" in eal
    assert {"--no-huge", "--no-pci"} <= set(eal)
    own, _ = eal_arguments("net_af_packet0,iface=eth1,framecnt=512", queues=2)
    assert any("framecnt=512" in word and "qpairs=2" in word for word in own)
    several, _ = eal_arguments("net_pcap0,rx_pcap=a.pcap,rx_pcap=b.pcap", queues=2)
    assert "--vdev=net_pcap0,rx_pcap=a.pcap,rx_pcap=b.pcap" in several
    assert eal_arguments("0000:3b:00.0")[0][-2:] == ["-a", "0000:3b:00.0"]


def test_a_device_that_is_not_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    device = f"dpdk:net_pcap0,rx_pcap={tmp_path}/nothing.pcap"
    done = subprocess.run(
        [sys.executable, "-m", "tapscope", "capture", "-i", device, "--spool", tmp_path / "x.spool"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == 1
    assert "DPDK" in done.stderr


def test_a_device_writes_packet_files_too(tmp_path: Path) -> None:
    given = PCAPS / CAPTURES[0]
    link, packets = records(given)
    file = tmp_path / "written.pcap"
    words = ["-i", f"dpdk:net_pcap0,rx_pcap={given}", "-w", str(file), "-c", str(len(packets))]
    done = subprocess.run(
        [sys.executable, "-m", "tapscope", "capture", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert records(file) == (link, packets)
