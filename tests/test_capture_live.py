"""`tapscope capture` for days, on real traffic: spools, signals, rights, memory."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from cli_program import COMMAND, environment, tapscope, until_read, wait_for
from live_network import has_segments, let_others_through, network, stop

from tapscope.capture import read_files, read_spool
from tapscope.store.codes import MessageKind
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to capture"),
]


PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
SOON_S = 10
"""For an answer that takes a moment, however busy the machine is; one that waits for a packet never comes."""


@pytest.fixture
def net():
    with network() as made:
        yield made


def messages(tables) -> list[tuple]:
    """Messages in words, in an order that does not depend on the order of reading."""
    table, connections = tables.messages, tables.connections
    texts = [text for _, text in tables.classes] + [""]
    answered = [-1 if row < 0 else int(table["begin_ns"][row]) for row in table["request"]]
    return sorted(
        (
            int(table["begin_ns"][i]),
            int(table["end_ns"][i]),
            int(table["kind"][i]),
            texts[table["class_id"][i]],
            int(table["status"][i]),
            int(table["wire_bytes"][i]),
            int(table["flags"][i]),
            answered[i],
            int(connections["client_port"][table["conn"][i]]),
            tables.addresses[connections["client_addr"][table["conn"][i]]],
        )
        for i in range(len(table["conn"]))
    )


def by_place(tables) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Client's port, kind and sequence number of each message; when it began and ended."""
    table = tables.messages
    ports = tables.connections["client_port"][table["conn"]]
    return {
        (int(ports[i]), int(table["kind"][i]), int(table["tcp_seq"][i])): (
            int(table["begin_ns"][i]),
            int(table["end_ns"][i]),
        )
        for i in range(len(ports))
    }


def requests(tables) -> int:
    return int((tables.messages["kind"] == MessageKind.REQUEST).sum())


def started(net, spool: Path, *words):
    """A capture that is known to see packets."""
    capture = net.capture("--spool", spool, *words)
    wait_for((spool / "manifest.json").exists)
    return capture


def test_a_spool_holds_what_the_packets_written_beside_it_hold(net, tmp_path):
    spool, packets = tmp_path / "x.spool", tmp_path / "x.pcap"
    capture = started(net, spool, "-w", packets, "--json", "tcp port 8080")
    client = net.client(300, per_connection=7, pause=0.005)
    assert client.wait(timeout=60) == 0
    out, errors = stop(capture)  # what still lies in the kernel's ring is read
    assert capture.returncode == ExitCode.DONE, errors
    record = json.loads(out)
    assert record["dropped_by_kernel"] == 0
    live, file = read_spool(spool), read_files([packets], salt=(spool / "salt").read_bytes())
    assert len(list(spool.glob("*.npz"))) >= 3
    assert requests(live) == 300
    assert messages(live) == messages(file)
    assert record["messages_by_protocol"] == {"http": 600}
    assert record["packets"] == file.sources[0]["packets"] == live.sources[0]["packets"]
    assert sorted(live.evidence["hash"]) == sorted(file.evidence["hash"])
    # The same run from either.
    for source, name in ((spool, "live.db"), (packets, "file.db")):
        done = tapscope("trace", source, "-o", tmp_path / name, "--json")
        assert done.returncode == ExitCode.DONE, done.stderr
    with RunFile.open(tmp_path / "live.db") as one, RunFile.open(tmp_path / "file.db") as other:
        question = "SELECT class, count(*), sum(depart_ns - arrive_ns) FROM v_call GROUP BY class"
        assert one.sql(question) == other.sql(question)


def test_killing_loses_no_more_than_the_last_second(net, tmp_path):
    spool, packets = tmp_path / "x.spool", tmp_path / "x.pcap"
    witness = net.start(
        net.server_space,
        "tcpdump",
        "-i",
        "tap0",
        "-U",
        "-w",
        str(packets),
        "--time-stamp-precision=nano",
        "tcp port 8080",
        stderr=subprocess.PIPE,
    )
    capture = started(net, spool, "tcp port 8080")
    client = net.client(100_000, per_connection=20, pause=0.002)
    wait_for(lambda: len(list(spool.glob("*.npz"))) >= 4)
    during = read_spool(spool)  # while the capture goes on
    assert requests(during) > 0
    killed_ns = time.time_ns()
    capture.kill()
    capture.wait()
    client.terminate()
    witness.terminate()
    witness.wait()
    left, truth = read_spool(spool), read_files([packets])
    assert requests(left) >= requests(during)
    # The two taps stamp a packet microseconds apart: messages are told by their place in the stream.
    kept, sent = by_place(left), by_place(truth)
    first_ns = left.messages["begin_ns"].min()
    due = {
        place for place, (begin, end) in sent.items() if begin > first_ns and end < killed_ns - 1_000_000_000
    }
    assert len(due) > 20
    assert due - kept.keys() == set()
    assert all(kept[place][1] >= 0 for place in due)
    done = tapscope("trace", spool, "-o", tmp_path / "run.db")
    assert done.returncode == ExitCode.DONE, done.stderr


def test_a_capture_goes_on_in_the_spool_that_a_killed_one_left(net, tmp_path):
    spool = tmp_path / "x.spool"
    capture = started(net, spool, "tcp port 8080")
    assert net.client(40).wait(timeout=60) == 0
    wait_for(lambda: has_segments(spool) and requests(read_spool(spool)) == 40)
    capture.kill()
    capture.wait()
    capture = net.capture("--spool", spool, "tcp port 8080")
    wait_for(lambda: len(json.loads((spool / "manifest.json").read_text())["sessions"]) == 2)
    assert net.client(30).wait(timeout=60) == 0
    stop(capture, signal.SIGINT)
    tables = read_spool(spool)
    assert requests(tables) == 70
    assert len(tables.classes) == 1
    assert len(tables.sources) == 2


def test_signals_are_answered_on_a_silent_wire(net, tmp_path):
    spool = tmp_path / "x.spool"
    capture = started(net, spool, "tcp port 8080")
    assert net.client(20).wait(timeout=60) == 0
    time.sleep(0.7)
    capture.send_signal(signal.SIGUSR1)
    assert capture.stderr is not None
    begin = time.monotonic()
    line = capture.stderr.readline().decode()
    assert time.monotonic() - begin < SOON_S
    assert "40 messages (http 40)" in line
    assert "0 dropped by kernel" in line
    assert "waiting" in line
    # A machine that does other things, too, may have sent a packet twice; that is told first.
    assert any(capture.stderr.readline().startswith(b"  packets ") for _ in range(3))
    capture.send_signal(signal.SIGHUP)  # reserved
    time.sleep(0.2)
    assert capture.poll() is None
    begin = time.monotonic()
    out, errors = stop(capture)
    assert time.monotonic() - begin < SOON_S
    assert capture.returncode == ExitCode.DONE
    assert "40 messages read (http 40)" in out
    assert "Traceback" not in errors


def test_a_run_is_made_at_the_end_and_its_spool_is_removed(net, tmp_path):
    run = tmp_path / "run.db"
    capture = net.capture("-o", run, "--json", "tcp port 8080")
    wait_for((tmp_path / "run.db.spool" / "manifest.json").exists)
    assert net.client(50).wait(timeout=60) == 0
    out, errors = stop(capture)
    assert capture.returncode == ExitCode.DONE, errors
    assert json.loads(out)["run"] == str(run)
    with RunFile.open(run) as made:
        assert made.sql("SELECT class, count(*) FROM v_call GROUP BY class") == [("GET /story/{n}", 50)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.db"]


def test_a_capture_whose_run_will_not_be_made_ends_and_is_kept(net, tmp_path):
    parent = net.capture("-o", tmp_path / "run.db", "tcp port 8080")
    spool = tmp_path / "run.db.spool"
    wait_for((spool / "manifest.json").exists)
    assert net.client(20).wait(timeout=60) == 0
    parent.kill()
    wait_for(lambda: "ended_ns" in json.loads((spool / "manifest.json").read_text())["sessions"][0])
    assert requests(read_spool(spool)) == 20
    again = tapscope("capture", "-i", "lo", "-o", tmp_path / "run.db", "--force", "-c", "1")
    assert again.returncode == ExitCode.ERROR
    assert f"tapscope trace {spool} -o" in again.stderr


def test_root_is_given_up_once_the_interface_is_open(net, tmp_path):
    tmp_path.chmod(0o700)  # nobody could not get here by name
    spool = tmp_path / "x.spool"
    capture = started(net, spool, "-w", tmp_path / "x.pcap", "tcp port 8080")
    assert net.client(20).wait(timeout=60) == 0
    wait_for(lambda: has_segments(spool))
    nobody = pwd.getpwnam("nobody")
    for task in Path(f"/proc/{capture.pid}/task").iterdir():
        status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(status[kind], 16) == 0, kind
        assert status["Uid"].split() == [str(nobody.pw_uid)] * 4
        assert status["Gid"].split() == [str(nobody.pw_gid)] * 4
    main = dict(line.split(":", 1) for line in Path(f"/proc/{capture.pid}/status").read_text().splitlines())
    assert int(main["CapBnd"], 16) == 0
    assert int(main["NoNewPrivs"]) == 1
    stop(capture)
    assert capture.returncode == ExitCode.DONE
    for path in [spool, *spool.iterdir()]:
        assert path.stat().st_uid == nobody.pw_uid, path
    assert (spool / "salt").stat().st_mode & 0o777 == 0o600
    manifest = (spool / "manifest.json").read_bytes()
    assert (spool / "salt").read_bytes().hex().encode() not in manifest


def test_an_unprivileged_user_needs_one_capability_and_gives_it_up(net, tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    let_others_through(tmp_path)
    rights = ["--inh-caps=-all,+net_raw", "--ambient-caps=-all,+net_raw", "--bounding-set=-all,+net_raw"]
    capture = net.start(
        net.server_space,
        *("setpriv", "--reuid", "nobody", "--clear-groups", *rights, "--"),
        *(*COMMAND, "capture", "-i", "tap0", "--spool", str(folder / "x.spool"), "tcp port 8080"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    wait_for((folder / "x.spool" / "manifest.json").exists)
    for task in Path(f"/proc/{capture.pid}/task").iterdir():
        status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(status[kind], 16) == 0, (task, kind)
        assert int(status["NoNewPrivs"]) == 1
    assert net.client(10).wait(timeout=60) == 0
    wait_for(lambda: has_segments(folder / "x.spool"))
    stop(capture)
    assert requests(read_spool(folder / "x.spool")) == 10


def test_root_is_kept_where_that_is_asked_for(net, tmp_path):
    capture = started(net, tmp_path / "x.spool", "-Z", "root")
    status = Path(f"/proc/{capture.pid}/status").read_text()
    assert "Uid:\t0\t0\t0\t0" in status
    stop(capture)
    unknown = tapscope("capture", "-i", "lo", "--spool", tmp_path / "y.spool", "-Z", "no-such-user")
    assert unknown.returncode == ExitCode.ERROR
    assert "no such user: no-such-user" in unknown.stderr
    assert not (tmp_path / "y.spool").exists()


def test_ctrl_c_ends_a_trace_whose_standard_input_is_stalled(tmp_path):
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "trace", "-", "-o", str(tmp_path / "run.db")],
        stdin=reader,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(reader)
    header = Path(__file__).resolve().parent.parent / "pcaps" / "mysql_several_statements.pcap"
    os.write(writer, header.read_bytes()[:1000])
    wait_for(lambda: fcntl.ioctl(writer, termios.FIONREAD, bytes(4)) == bytes(4))
    assert process.poll() is None
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    os.close(writer)
    assert time.monotonic() - begin < SOON_S
    assert process.returncode == ExitCode.INTERRUPTED
    assert b"interrupted" in errors


def test_a_growing_file_is_read_until_ctrl_c(tmp_path):
    whole = (PCAPS / "mysql_several_statements.pcap").read_bytes()
    growing = tmp_path / "growing.pcap"
    growing.write_bytes(whole[:1000])  # inside a packet
    process = subprocess.Popen(
        [*COMMAND, "trace", "--follow", str(growing), "-o", str(tmp_path / "run.db"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    until_read(growing, process)
    with growing.open("ab") as file:
        for begin in range(1000, len(whole), 700):
            file.write(whole[begin : begin + 700])
            file.flush()
            time.sleep(0.05)
    until_read(growing, process)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.DONE, errors
    complete = tapscope(
        "trace", PCAPS / "mysql_several_statements.pcap", "-o", tmp_path / "whole.db", "--json"
    )
    assert json.loads(out)["calls"] == json.loads(complete.stdout)["calls"] > 0
    with RunFile.open(tmp_path / "run.db") as run:
        assert run.sources()[0]["path"] == str(growing)


def _replace(path):
    path.rename(path.with_suffix(".old"))
    path.write_bytes((PCAPS / "mysql_several_statements.pcap").read_bytes())


@pytest.mark.parametrize(
    ("harm", "said"),
    [(lambda path: os.truncate(path, 24), "got shorter"), (_replace, "was replaced by another file")],
)
def test_a_followed_file_that_is_begun_anew_is_named(harm, said, tmp_path):
    """As when a rotating capture begins its file anew: what was read is traced, and why it ended is said."""
    whole = (PCAPS / "mysql_several_statements.pcap").read_bytes()
    growing = tmp_path / "growing.pcap"
    growing.write_bytes(whole)
    process = subprocess.Popen(
        [*COMMAND, "trace", "--follow", str(growing), "-o", str(tmp_path / "run.db"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    until_read(growing, process)
    harm(growing)
    out, errors = process.communicate(timeout=60)  # ends by itself
    assert process.returncode == ExitCode.DONE, errors
    record = json.loads(out)
    assert record["calls"] > 0
    assert any(said in warning for warning in record["loss"]["warnings"])
    assert said.encode() in errors
