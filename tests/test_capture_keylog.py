"""Secrets of TLS that are written while packets come: by real servers, late, or never."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_program import wait_for
from live_network import Network, has_segments, network, stop
from test_capture_accounting import records, write
from test_capture_live import messages

from tapscope import capture
from tapscope.capture import CaptureTables
from tapscope.store.codes import MessageFlag, MessageKind, Protocol

HERE = Path(__file__).resolve().parent
TLS = HERE.parent / "pcaps/tls"
HOUR_NS = 3_600_000_000_000
MYSQL_PORT, POSTGRES_PORT = 3306, 5432


def read_growing(packets: bytes, first: int, keys: str, log: Path, wait_ns: int) -> CaptureTables:
    """Reads a capture of which `first` bytes come before the secrets are in the log, and the rest after."""
    log.write_text("")
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 1 << 20)

    def taken() -> bool:
        return struct.unpack("i", fcntl.ioctl(out, termios.FIONREAD, bytes(4)))[0] == 0

    def bring() -> None:
        with os.fdopen(into, "wb", buffering=0) as pipe:
            pipe.write(packets[:first])
            while not taken():
                time.sleep(0.001)
            time.sleep(0.005)  # what was taken is looked at
            log.write_text(keys)
            pipe.write(packets[first:])

    bringer = threading.Thread(target=bring)
    bringer.start()
    tables = capture.read_files(
        [f"/dev/fd/{out}"], tls_keylog=log, limits={"tls_key_wait_ns": wait_ns}, salt=bytes(16)
    )
    bringer.join()
    os.close(out)
    assert capture.account(tables.connections, tables.messages, tables.counters).disagreements == ()
    return tables


@pytest.mark.parametrize("name", ["tls12_aes256gcm", "tls13_aes128gcm", "early_taken", "early_refused"])
def test_wherever_the_secrets_come_the_messages_are_those_of_a_log_that_was_there(
    name: str, tmp_path: Path
) -> None:
    packets, keys = (TLS / f"{name}.pcap").read_bytes(), (TLS / f"{name}.keys").read_text()
    whole = capture.read_files([TLS / f"{name}.pcap"], tls_keylog=TLS / f"{name}.keys", salt=bytes(16))
    _, frames = records(TLS / f"{name}.pcap")
    ends = 24 + np.cumsum([16 + len(data) for _, data, _ in frames])
    awaited = 0
    for end in ends[2::4]:
        tables = read_growing(packets, int(end), keys, tmp_path / "log.keys", HOUR_NS)
        awaited += tables.counter("tls.secrets_awaited")
        assert messages(tables) == messages(whole), end
        assert tables.counter("tls.decrypted") == 1
    assert awaited > len(ends) / 8, "the capture was ahead of the log"


def test_half_of_the_secrets_is_not_enough_to_go_on(tmp_path: Path) -> None:
    """OpenSSL writes those of the handshake first."""
    name = "tls13_aes128gcm"
    packets, keys = (TLS / f"{name}.pcap").read_bytes(), (TLS / f"{name}.keys").read_text()
    late = [line for line in keys.splitlines(keepends=True) if "_TRAFFIC_SECRET_0" in line]
    assert len(late) == 2
    log = tmp_path / "log.keys"
    early = "".join(line for line in keys.splitlines(keepends=True) if line not in late)
    tables = read_growing(packets, len(packets), early, log, HOUR_NS)
    assert tables.counter("tls.secrets_awaited") == 1
    assert tables.counter("tls.secrets_not_enough") == 1


def test_a_connection_whose_secrets_never_come_is_timed_as_without_a_log(tmp_path: Path) -> None:
    name = "tls13_aes128gcm"
    packets = (TLS / f"{name}.pcap").read_bytes()
    sealed = capture.read_files([TLS / f"{name}.pcap"], salt=bytes(16))
    for wait_ns in (1, 2_000_000, HOUR_NS):
        tables = read_growing(packets, len(packets) // 2, "", tmp_path / "log.keys", wait_ns)
        assert messages(tables) == messages(sealed), wait_ns
        assert tables.counter("tls.secrets_awaited") == tables.counter("tls.no_secrets") == 1


def test_the_bytes_that_wait_are_bounded(tmp_path: Path) -> None:
    """At the bound the connection goes on without secrets; nothing is dropped."""
    name = "tls13_aes128gcm"
    sealed = capture.read_files([TLS / f"{name}.pcap"], salt=bytes(16))
    log = tmp_path / "log.keys"
    log.write_text("")
    limits = {"tls_key_wait_ns": HOUR_NS, "held_bytes_of_stream": 4000}
    tables = capture.read_files([TLS / f"{name}.pcap"], tls_keylog=log, limits=limits, salt=bytes(16))
    assert tables.counter("reassembly.stream_bound") == 1
    assert messages(tables) == messages(sealed)


def test_a_loss_while_a_connection_waits_is_a_loss_of_that_place(tmp_path: Path) -> None:
    name = "tls13_aes128gcm"
    keys = (TLS / f"{name}.keys").read_text()
    link, frames = records(TLS / f"{name}.pcap")
    largest = max(range(len(frames)), key=lambda row: len(frames[row][1]))
    cut = write(tmp_path / "cut.pcap", link, frames[:largest] + frames[largest + 1 :])
    log = tmp_path / "late.keys"
    log.write_text(keys)
    whole = capture.read_files([cut], tls_keylog=log, salt=bytes(16))
    packets = cut.read_bytes()
    tables = read_growing(packets, len(packets), keys, tmp_path / "log.keys", HOUR_NS)
    assert messages(tables) == messages(whole)
    assert (tables.messages["flags"] & MessageFlag.TRUNCATED).any()


class Databases:
    """MariaDB and PostgreSQL under TLS, which write the secrets of their connections to a file."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net, self.keys = net, folder / "servers.keys"
        cert, key, preload = folder / "cert.pem", folder / "key.pem", folder / "keylog.so"
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
        subprocess.run([*request, "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", preload, HERE / "keylog_preload.c", "-ldl"], check=True
        )
        data = {name: folder / name for name in ("mariadb", "postgres")}
        self.keys.touch()
        for path in data.values():
            path.mkdir()
        for path in (*data.values(), self.keys, key):
            os.chown(path, *NOBODY)
        key.chmod(0o600)
        programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
        as_nobody = ["setpriv", "--reuid=nobody", f"--regid={NOBODY[1]}", "--clear-groups"]
        initdb = [programs / "initdb", "--no-sync", "-A", "trust", "-U", "tap", "-D", data["postgres"]]
        subprocess.run([*as_nobody, *initdb], check=True, stdout=subprocess.DEVNULL, cwd="/")
        log = (folder / "servers.log").open("wb")
        environment = os.environ | {"LD_PRELOAD": str(preload), "SSLKEYLOGFILE": str(self.keys)}
        for words in (
            ["mariadbd", "--no-defaults", "--skip-grant-tables", f"--datadir={data['mariadb']}",
             f"--port={MYSQL_PORT}", "--bind-address=127.0.0.1", f"--socket={data['mariadb']}/socket",
             f"--pid-file={data['mariadb']}/pid", f"--ssl-cert={cert}", f"--ssl-key={key}"],
            [str(programs / "postgres"), "-D", str(data["postgres"]), "-p", str(POSTGRES_PORT),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
             "-c", "ssl=on", "-c", f"ssl_cert_file={cert}", "-c", f"ssl_key_file={key}"],
        ):  # fmt: skip
            net.start(net.server_space, *as_nobody, *words, env=environment, stdout=log, stderr=log, cwd="/")
        log.close()
        wait_for(lambda: self.mysql("SELECT 1") == "1\n")
        wait_for(lambda: self.postgres("SELECT 1") == "1\n")

    def mysql(self, statements: str) -> str:
        return self._run("mariadb", "--no-defaults", "-h127.0.0.1", "--ssl", "-N", "-e", statements)

    def postgres(self, *statements: str) -> str:
        words = [word for statement in statements for word in ("-c", statement)]
        where = f"host=127.0.0.1 port={POSTGRES_PORT} user=tap dbname=postgres sslmode=require"
        return self._run("psql", where, "-qAt", *words)

    def _run(self, *words: str) -> str:
        command = ["ip", "netns", "exec", self.net.server_space, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


NOBODY = (65534, 65534)


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with tempfile.TemporaryDirectory() as name, network() as net:
        Path(name).chmod(0o755)  # the servers run as nobody
        yield Databases(net, Path(name))


def use(databases: Databases) -> None:
    databases.mysql(
        "CREATE DATABASE IF NOT EXISTS shop; CREATE OR REPLACE TABLE shop.item (id INT, name VARCHAR(20)); "
        "INSERT INTO shop.item VALUES (1, 'one'), (2, 'two'); SELECT name FROM shop.item WHERE id = 2"
    )
    databases.postgres(
        "DROP TABLE IF EXISTS note", "CREATE TABLE note (id int)", "SELECT count(*) FROM note WHERE id > 3"
    )


def classes(tables: CaptureTables, protocol: Protocol) -> set[str]:
    return {text for code, text in tables.classes if code == protocol}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to capture")
@pytest.mark.skipif(not Path("/usr/lib/postgresql").exists(), reason="needs PostgreSQL")
@pytest.mark.parametrize("late", [False, True])
def test_databases_under_tls_are_read_while_their_servers_write_the_secrets(
    databases: Databases, late: bool, tmp_path: Path
) -> None:
    log = tmp_path / "seen.keys" if late else databases.keys
    spool, packets = tmp_path / "spool", tmp_path / "packets.pcap"
    if late:
        log.touch(mode=0o600)  # of root: it was opened before the capture gave up root
    words = ["-w", packets, "--spool", spool, "--tls-keylog", log, "--tls-keylog-wait", "60s", "tcp"]
    process = databases.net.capture_on("lo", *words)
    wait_for((spool / "manifest.json").exists)
    use(databases)
    wait_for(lambda: has_segments(spool))
    if late:
        wait_for(lambda: capture.read_spool([spool]).counter("tls.secrets_awaited") == 2)
        assert capture.read_spool([spool]).counter("tls.decrypted") == 0
        log.write_bytes(databases.keys.read_bytes())
    wait_for(lambda: capture.read_spool([spool]).counter("tls.decrypted") == 2)
    stop(process)
    tables = capture.read_spool([spool])
    assert sorted(tables.connections["protocol"]) == [Protocol.MYSQL, Protocol.POSTGRES]
    assert "SELECT name FROM shop.item WHERE id = ?" in classes(tables, Protocol.MYSQL)
    assert "SELECT count(*) FROM note WHERE id > ?" in classes(tables, Protocol.POSTGRES)
    asked = tables.messages["kind"] == MessageKind.REQUEST
    answered = tables.messages["kind"] == MessageKind.RESPONSE
    assert set(tables.messages["request"][answered]) <= set(np.flatnonzero(asked))
    again = capture.read_files([packets], tls_keylog=databases.keys)
    assert messages(tables) == messages(again)
