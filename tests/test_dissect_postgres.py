"""PostgreSQL as real clients speak it: calls, classes, statuses and evidence of recorded connections."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import dissect_checks
import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, unaccounted, write_pcap
from dissect_checks import (
    ERROR,
    INTERIM,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    calls_of,
    check_late_start,
    check_loss,
    check_segmentation,
    read,
)

from tapscope import capture
from tapscope.store.codes import Protocol

PCAPS = Path(__file__).resolve().parent.parent / "pcaps/postgres"
NAMES = sorted(path.name for path in PCAPS.glob("*.pcap*"))
PORT = 5432


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack("!I", 4 + len(body)) + body


def startup(user: bytes = b"tap") -> bytes:
    body = struct.pack("!I", 3 << 16) + b"user\0" + user + b"\0\0"
    return struct.pack("!I", 4 + len(body)) + body


def query(text: str) -> bytes:
    return message("Q", text.encode() + b"\0")


def parse(name: str, text: str, *oids: int) -> bytes:
    body = name.encode() + b"\0" + text.encode() + b"\0" + struct.pack("!H", len(oids))
    return message("P", body + b"".join(struct.pack("!I", oid) for oid in oids))


def bind(name: str, *values: bytes | None, portal: str = "", binary: bool = False) -> bytes:
    body = portal.encode() + b"\0" + name.encode() + b"\0" + struct.pack("!HHH", 1, binary, len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!I", len(value)) + value
    return message("B", body + struct.pack("!H", 0))


def execute(portal: str = "", rows: int = 0) -> bytes:
    return message("E", portal.encode() + b"\0" + struct.pack("!I", rows))


SYNC, FLUSH = message("S"), message("H")
READY = message("Z", b"I")
LOGGED_IN = message("R", b"\0\0\0\0") + message("K", b"\0\0\0\1\0\0\0\2") + READY
PARSED, BOUND, CLOSED, NO_DATA = (message(kind) for kind in "123n")


def done(tag: str = "SELECT 1") -> bytes:
    return message("C", tag.encode() + b"\0")


def failed(state: str = "42P01", severity: str = "ERROR") -> bytes:
    return message("E", f"S{severity}\0V{severity}\0C{state}\0Mno\0".encode() + b"\0")


def row(*values: bytes) -> bytes:
    body = struct.pack("!H", len(values))
    return message("D", body + b"".join(struct.pack("!I", len(value)) + value for value in values))


def talk(tmp_path: Path, *parts: tuple[int, bytes], login: bool = True) -> capture.CaptureTables:
    """A connection whose sides say `parts` in turn."""
    before = ((CLIENT, startup()), (SERVER, LOGGED_IN)) if login else ()
    return dissect_checks.talk(tmp_path, *parts, port=PORT, before=before)


def calls(tables: capture.CaptureTables) -> list[tuple[str, int | None]]:
    """Class text of every request but the login, and the status of its answer (None: no answer)."""
    return [call for call in calls_of(tables, Protocol.POSTGRES) if call[0] != "LOGIN"]


def classes(tables: capture.CaptureTables, *kinds: int) -> list[str]:
    m = tables.messages
    rows = np.flatnonzero(
        (m["protocol"] == Protocol.POSTGRES) & np.isin(m["kind"], kinds) & (m["class_id"] >= 0)
    )
    return [tables.classes[m["class_id"][i]][1] for i in rows]


# ---- recorded ----------------------------------------------------------------------------------------

# file: requests, answers that are errors, empty answers of statements that the server skipped
COUNTS = {
    "jdbc_batch.pcap": (40, 6, 5),
    "jdbc_cursor.pcap": (8, 0, 0),
    "jdbc_prepared.pcap": (13, 1, 0),
    "jdbc_simple.pcap": (13, 1, 0),
    "pg8000.pcap": (17, 1, 0),
    "pgbench.pcap": (197, 0, 0),
    "psql_copy.pcap": (5, 1, 0),
    "psql_prefer_tls_declined.pcap": (3, 0, 0),
    "psql_refused.pcap": (1, 1, 0),
    "psql_simple.pcap": (14, 3, 0),
    "psql_tls.pcap": (1, 0, 0),
    "psycopg_cancel.pcap": (5, 2, 0),
    "psycopg_pipeline.pcap": (13, 3, 2),
    "psycopg_plain.pcap": (19, 1, 0),
    "replication.pcap": (12, 0, 0),
}


def test_every_capture_is_counted() -> None:
    assert sorted(COUNTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_request_is_found_and_answered_and_no_byte_is_left(name: str) -> None:
    tables = read(PCAPS / name)
    m, c = tables.messages, tables.connections
    plain = c["protocol"] == Protocol.POSTGRES
    assert c["unparsed_to_server"][plain].sum() == 0
    assert c["unparsed_to_client"][plain].sum() == 0
    mine = m["protocol"] == Protocol.POSTGRES
    requests = np.flatnonzero(mine & (m["kind"] == REQUEST))
    answered = m["request"][mine & (m["kind"] == RESPONSE)]
    assert sorted(answered.tolist()) == requests.tolist()
    errors = int((m["flags"][mine] & ERROR > 0).sum())
    empty = int((m["wire_bytes"] == 0).sum())
    assert (len(requests), errors, empty) == COUNTS[name]
    assert unaccounted(tables) == []


@pytest.mark.parametrize("name", NAMES)
def test_segmentation_does_not_matter(name: str, tmp_path: Path) -> None:
    check_segmentation(PCAPS / name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_joined_late_no_answer_goes_to_another_s_request(name: str, tmp_path: Path) -> None:
    if name == "pgbench.pcap":
        pytest.skip("several hundred packets of the same kind")
    if name == "psql_tls.pcap":
        pytest.skip("joined later it is a TLS connection")
    check_late_start(PCAPS / name, tmp_path)


# With several statements on the way nothing but ReadyForQuery tells which of them an answer belongs to; and
# the captures are short, so that a loss takes a large share of them.
@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("psql_simple.pcap", 0.90),
        ("psql_copy.pcap", 0.80),
        ("jdbc_prepared.pcap", 0.90),
        ("jdbc_simple.pcap", 0.90),
        ("jdbc_cursor.pcap", 0.80),
        ("jdbc_batch.pcap", 0.85),
        ("pg8000.pcap", 0.90),
        ("psycopg_plain.pcap", 0.90),
        ("psycopg_pipeline.pcap", 0.65),
        ("replication.pcap", 0.90),
    ],
)
def test_a_lost_packet_leaves_a_gap_but_no_wrong_pair(name: str, share: float, tmp_path: Path) -> None:
    check_loss(PCAPS / name, tmp_path, share)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_those_of_tshark(name: str) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    command = ["tshark", "-n", "-r", str(PCAPS / name), "-d", "tcp.port==25432,pgsql", "-T", "fields"]
    command += ["-e", "pgsql.type", "-e", "pgsql.frontend"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    types = [kind for line in listing.splitlines() for kind in line.split("\t")[0].split(",") if kind]
    tables = read(PCAPS / name)
    found = classes(tables, REQUEST)
    executed = [text for text in found if text.startswith(("EXECUTE", "FETCH "))]
    assert types.count("Startup message") == found.count("LOGIN")
    if name != "psycopg_plain.pcap":  # there a statement of simple queries is called FETCH
        assert types.count("Execute") == len(executed)
    assert types.count("Termination") == classes(tables, ONE_WAY).count("TERMINATE")
    simple = len(found) - len(executed) - found.count("LOGIN")
    other = sum(text.startswith(("PREPARE", "DESCRIBE", "CLOSE", "BIND", "SYNC", "SSL")) for text in found)
    if name != "psycopg_plain.pcap":
        assert types.count("Simple query") == simple - other


def test_statements_of_a_batch_are_answered_one_by_one_up_to_the_one_that_fails() -> None:
    found = calls(read(PCAPS / "jdbc_batch.pcap"))
    insert = "EXECUTE INSERT INTO note (text) VALUES (?)"
    statuses = [status for text, status in found if text == insert]
    assert statuses == [0] * 12 + [0] * 4 + [int("23505", 36)] + [-1] * 5
    assert [status for text, status in found if text.startswith("EXECUTE UPDATE")] == [0] * 6


def test_a_portal_read_in_parts_is_one_execution_and_fetches() -> None:
    select = "SELECT id, title FROM story WHERE id <= ? ORDER BY id"
    found = [text for text, _ in calls(read(PCAPS / "jdbc_cursor.pcap")) if select in text]
    assert found == ["EXECUTE " + select, "FETCH " + select, "FETCH " + select]


def test_one_class_before_and_after_a_driver_prepares_on_the_server() -> None:
    found = [text for text, _ in calls(read(PCAPS / "jdbc_prepared.pcap"))]
    select = "EXECUTE SELECT id, title, tag, written FROM story WHERE id = ? AND score < ? AND title <> ?"
    assert found.count(select) == 9
    tables = read(PCAPS / "jdbc_prepared.pcap")
    m, e = tables.messages, tables.evidence
    runs = [i for i in np.flatnonzero(m["kind"] == REQUEST) if tables.classes[m["class_id"][i]][1] == select]
    slots = [sorted(e["slot"][(e["message"] == i) & (e["kind"] & 127 != 6)].tolist()) for i in runs]
    assert slots == [[0, 1, 2]] * 9
    # Result values are the same tokens in text format (first executions) and in binary format (later ones).
    answers = [int(np.flatnonzero(m["request"] == i)[0]) for i in runs]
    results = [e["slot"][e["message"] == i].tolist() for i in answers]
    assert results == [[0, 1, 2]] * 9


def test_values_hash_alike_in_text_and_binary_format() -> None:
    def parameters(name: str, text: str) -> list[list[int]]:
        tables = read(PCAPS / name)
        m, e = tables.messages, tables.evidence
        rows = [
            i
            for i in np.flatnonzero(m["kind"] == REQUEST)
            if tables.classes[m["class_id"][i]][1].startswith(text)
        ]
        return [
            e["hash"][(e["message"] == i) & (e["slot"] == 0) & (e["kind"] & 127 == 2)].tolist() for i in rows
        ]

    binary = parameters("jdbc_prepared.pcap", "EXECUTE SELECT id, title, tag")
    literal = parameters("jdbc_simple.pcap", "SELECT id, title, tag")
    assert len(binary) == len(literal) == 9
    jdbc_text = [values for values in literal if values]
    if jdbc_text:
        assert binary == literal
    bound = parameters("psycopg_plain.pcap", "EXECUTE SELECT title, tag, price")
    assert [values[0] for values in bound] == [values[0] for values in binary[:8]]


def array(oid: int, *values: bytes | None, dimensions: int = 1) -> bytes:
    body = struct.pack("!iiI", dimensions, 0, oid) + struct.pack("!ii", len(values), 1) * dimensions
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return body


INT4, INT4_ARRAY, TEXT_ARRAY = 23, 1007, 1009


@pytest.mark.parametrize(
    ("oid", "value", "binary", "literals"),
    [
        (INT4_ARRAY, b"{7,NULL,9}", False, "7, 9"),
        (0, b"{7,9}", False, "7, 9"),
        (INT4_ARRAY, array(INT4, b"\0\0\0\7", None, b"\0\0\0\x09"), True, "7, 9"),
        (TEXT_ARRAY, b'{plain,"two, words",NULL}', False, "'plain', 'two, words'"),
        (TEXT_ARRAY, array(25, b"plain", b"two, words"), True, "'plain', 'two, words'"),
        (TEXT_ARRAY, b"{}", False, ""),
        (INT4_ARRAY, array(INT4, dimensions=2), True, ""),
        (0, b'{"a": 7}', False, "'{\"a\": 7}'"),
    ],
)
def test_elements_of_arrays_are_evidence_as_literals_are(
    tmp_path: Path, oid: int, value: bytes, binary: bool, literals: str
) -> None:
    statement = parse("", "SELECT a FROM t WHERE id = ANY($1)", oid) + bind("", value, binary=binary)
    tables = talk(
        tmp_path,
        (CLIENT, query(f"SELECT a FROM t WHERE id IN ({literals})")),
        (SERVER, done() + READY),
        (CLIENT, statement + execute() + SYNC),
        (SERVER, PARSED + BOUND + done() + READY),
    )
    m, e = tables.messages, tables.evidence
    by_text, bound = (
        e["hash"][(e["message"] == message) & np.isin(e["kind"] & 127, (2, 3)) & (e["slot"] < 128)].tolist()
        for message in np.flatnonzero(m["kind"] == REQUEST)[-2:]
    )
    assert bound == by_text[: 0 if literals == "" else None]


def test_copy_belongs_to_its_statement() -> None:
    tables = read(PCAPS / "psql_copy.pcap")
    m = tables.messages
    sizes = {
        tables.classes[m["class_id"][i]][1]: int(m["wire_bytes"][i])
        for i in np.flatnonzero(m["kind"] == REQUEST)
    }
    assert sizes["COPY note ( text ) FROM STDIN"] > 4000
    assert classes(tables, INTERIM) == ["COPY_IN", "COPY_IN"]
    assert calls(tables)[-1] == ("COPY note ( id ) FROM STDIN", int("22P02", 36))


COPY_IN = message("G", b"\0\0\1\0\0")
COPIED = message("d", b"1\n") * 3


@pytest.mark.parametrize(
    ("turns", "status"),
    [
        pytest.param(
            [(CLIENT, COPIED + message("c") + SYNC), (SERVER, done("COPY 3") + READY)], 0, id="done"
        ),
        pytest.param(
            [(CLIENT, COPIED + message("c")), (SERVER, done("COPY 3")), (CLIENT, SYNC), (SERVER, READY)],
            0,
            id="Sync behind the answer",
        ),
        pytest.param(
            [(CLIENT, COPIED + message("f", b"no\0") + SYNC), (SERVER, failed("57014") + READY)],
            int("57014", 36),
            id="given up",
        ),
        pytest.param(
            [
                (CLIENT, COPIED),
                (SERVER, failed("22P02")),
                (CLIENT, COPIED + message("c") + SYNC),
                (SERVER, READY),
            ],
            int("22P02", 36),
            id="refused in the middle",
        ),
    ],
)
@pytest.mark.parametrize("ends", [SYNC, FLUSH])
def test_the_sync_behind_copied_data_is_no_call_of_its_own(
    ends: bytes, turns: list[tuple[int, bytes]], status: int, tmp_path: Path
) -> None:
    """The server ignores the Sync that it was sent with the Execute."""
    tables = talk(
        tmp_path,
        (CLIENT, parse("", "COPY t FROM STDIN") + bind("") + execute() + ends),
        (SERVER, PARSED + BOUND + COPY_IN),
        *turns,
        (CLIENT, query("select 1")),
        (SERVER, done() + READY),
    )
    assert calls(tables) == [("EXECUTE COPY t FROM STDIN", status), ("select ?", 0)]


def test_a_lost_packet_around_copied_data_shifts_nothing(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT).open()
    copy = [
        (CLIENT, parse("", "COPY t FROM STDIN") + bind("") + execute() + SYNC),
        (SERVER, PARSED + BOUND + COPY_IN),
        (CLIENT, COPIED),
        (CLIENT, COPIED + message("c") + SYNC),
        (SERVER, done("COPY 6") + READY),
    ]
    asked = [(CLIENT, query("select 1")), (SERVER, row(b"1") + done() + READY)]
    for side, data in [
        (CLIENT, startup()),
        (SERVER, LOGGED_IN),
        *asked,
        *copy,
        *asked,
        *copy,
        *asked,
        *asked,
    ]:
        dialogue.send(side, data)
    path = write_pcap(tmp_path / "copy.pcap", dialogue.close().packets)
    check_late_start(path, tmp_path)
    check_loss(path, tmp_path, 0.8)


def test_a_flushed_request_that_was_lost_shifts_nothing(tmp_path: Path) -> None:
    """No ReadyForQuery ends its answer; the next one is not told from it, those behind it are."""
    dialogue = Dialogue(server_port=PORT).open()
    flushed = parse("s", "SELECT $1") + message("D", b"Ss\0") + FLUSH
    turns = [(CLIENT, startup()), (SERVER, LOGGED_IN), (CLIENT, query("select 1")), (SERVER, done() + READY)]
    turns += [(CLIENT, flushed), (SERVER, PARSED + message("t", b"\0\1\0\0\0\x17") + NO_DATA)]
    turns += [(CLIENT, bind("s", b"1") + execute() + SYNC), (SERVER, BOUND + done() + READY)]
    turns += [(CLIENT, query("select 2, 3")), (SERVER, done() + READY)] * 2
    for side, data in turns:
        dialogue.send(side, data)
        if data == flushed:
            del dialogue.packets[-2:]
    tables = read(write_pcap(tmp_path / "lost.pcap", dialogue.close().packets))
    assert unaccounted(tables) == []
    assert calls(tables)[1:] == [("EXECUTE (text unseen)", None), ("select ?, ?", 0), ("select ?, ?", 0)]
    m = tables.messages
    answers = [(int(m["tcp_seq"][i]), int(m["request"][i])) for i in np.flatnonzero(m["kind"] == RESPONSE)]
    assert [tables.classes[m["class_id"][row]][1] for _, row in sorted(answers)[-2:]] == ["select ?, ?"] * 2
    assert sorted(row for _, row in answers)[-2:] == [row for _, row in sorted(answers)[-2:]]


def test_a_lost_refusal_of_encryption_hides_nothing(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT).open()
    for side, data in [(CLIENT, struct.pack("!II", 8, 80877103)), (SERVER, b"N"), (CLIENT, startup())]:
        dialogue.emit(side, 24, data)
        dialogue.seq[side] += len(data)
    dialogue.send(SERVER, LOGGED_IN).send(CLIENT, query("select 1")).send(SERVER, done() + READY).close()
    tables = dissect_checks.read(
        write_pcap(tmp_path / "lost.pcap", dialogue.packets[:4] + dialogue.packets[5:])
    )
    assert unaccounted(tables) == []
    assert classes(tables, REQUEST) == ["SSL_REQUEST", "LOGIN", "select ?"]
    assert calls(tables) == [("SSL_REQUEST", None), ("select ?", 0)]


def test_a_statement_without_name_is_forgotten_where_its_successor_may_be_lost(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT).open()
    turns = [(CLIENT, startup()), (SERVER, LOGGED_IN)]
    for text in ("SELECT a", "SELECT b"):
        turns += [(CLIENT, parse("", text) + SYNC), (SERVER, PARSED + READY)]
        turns += [(CLIENT, bind("") + execute() + SYNC), (SERVER, BOUND + done() + READY)]
    for side, data in turns:
        dialogue.send(side, data)
    packets = [packet for packet in dialogue.close().packets if b"SELECT b" not in packet[1]]
    tables = dissect_checks.read(write_pcap(tmp_path / "lost.pcap", packets))
    assert calls(tables) == [("PREPARE SELECT a", 0), ("EXECUTE SELECT a", 0), ("EXECUTE (text unseen)", 0)]


def test_the_end_of_a_login_says_nothing_of_requests_lost_behind_it(tmp_path: Path) -> None:
    """The password and the first of two statements of a pipeline are lost; the login's answer is not."""
    dialogue = Dialogue(server_port=PORT).open()
    password = message("R", struct.pack("!I", 3))
    unit = parse("", "SELECT 1") + bind("") + execute()
    for side, data in [
        (CLIENT, startup()),
        (SERVER, password),
        (CLIENT, message("p", b"x\0")),
        (SERVER, LOGGED_IN),
    ]:
        dialogue.emit(side, 24, data)
        dialogue.seq[side] += len(data)
    for data in (unit, unit + SYNC):
        dialogue.emit(CLIENT, 24, data)
        dialogue.seq[CLIENT] += len(data)
    answer = PARSED + BOUND + done()
    dialogue.send(SERVER, answer + PARSED + BOUND + failed() + READY)
    dialogue.send(CLIENT, query("select 1")).send(SERVER, done() + READY).close()
    packets = dialogue.packets[:5] + dialogue.packets[6:7] + dialogue.packets[8:]
    tables = dissect_checks.read(write_pcap(tmp_path / "lost.pcap", packets))
    assert unaccounted(tables) == []
    assert calls(tables) == [("EXECUTE SELECT ?", None), ("select ?", 0)]


def test_under_tls_only_the_request_for_it_is_read() -> None:
    tables = read(PCAPS / "psql_tls.pcap")
    assert calls(tables) == [("SSL_REQUEST", 0)]
    assert tables.connections["protocol"].tolist() == [Protocol.TLS]


def test_replication_streams_are_one_way() -> None:
    found = classes(read(PCAPS / "replication.pcap"), ONE_WAY)
    assert found.count("REPLICATION_DATA") == 9
    assert found.count("REPLICATION_STATUS") == 2


def test_cancelling_and_ending_from_outside() -> None:
    tables = read(PCAPS / "psycopg_cancel.pcap")
    assert classes(tables, ONE_WAY).count("CANCEL_REQUEST") == 1
    assert classes(tables, ONE_WAY).count("SERVER_ERROR") == 1
    assert ("EXECUTE SELECT pg_sleep(?)", int("57014", 36)) in calls(tables)


# ---- made up -----------------------------------------------------------------------------------------


def test_a_statement_text_may_be_longer_than_the_bound(tmp_path: Path) -> None:
    text = "SELECT " + ", ".join(f"'value {n}'" for n in range(20_000))
    tables = talk(
        tmp_path,
        (CLIENT, query(text)),
        (SERVER, done() + READY),
        (CLIENT, query("SELECT 1")),
        (SERVER, READY),
    )
    found = calls(tables)
    assert [status for _, status in found] == [0, 0]
    assert found[0][0].startswith("SELECT ?, ?")
    assert len(found[0][0]) < 70_000
    assert tables.counter("postgres.statement_cut") == 1


def test_flush_gets_answers_before_sync(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, parse("s", "SELECT a FROM t WHERE b = $1") + message("D", b"Ss\0") + FLUSH),
        (SERVER, PARSED + message("t", b"\0\1\0\0\0\x17") + NO_DATA),
        (CLIENT, bind("s", b"\0\0\0\x07", binary=True) + execute() + FLUSH),
        (SERVER, BOUND + row(b"x") + done()),
        (CLIENT, SYNC),
        (SERVER, READY),
    )
    select = "SELECT a FROM t WHERE b = ?"
    assert calls(tables) == [("PREPARE " + select, 0), ("EXECUTE " + select, 0), ("SYNC", 0)]
    e = tables.evidence
    assert (e["kind"] == 2).sum() == 1  # the type came with ParameterDescription


def test_close_behind_an_execution_belongs_to_it(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, parse("", "SELECT 1") + bind("") + execute() + message("C", b"P\0") + SYNC),
        (SERVER, PARSED + BOUND + row(b"1") + done() + CLOSED + READY),
        (CLIENT, message("C", b"Sold\0") + parse("", "SELECT 2") + bind("") + execute() + SYNC),
        (SERVER, CLOSED + PARSED + BOUND + done() + READY),
    )
    assert calls(tables) == [("EXECUTE SELECT ?", 0), ("EXECUTE SELECT ?", 0)]


def test_asynchronous_messages_are_one_way_between_calls_and_inside_of_them_part_of_the_answer(
    tmp_path: Path,
) -> None:
    note = message("A", b"\0\0\0\1channel\0payload\0")
    status = message("S", b"TimeZone\0UTC\0")
    tables = talk(
        tmp_path,
        (SERVER, note),
        (CLIENT, query("SET TimeZone = 'UTC'")),
        (SERVER, done("SET") + status + READY + note),
        (SERVER, status),
        (SERVER, failed("57P01", "FATAL")),
    )
    assert calls(tables) == [("SET TimeZone = ?", 0)]
    assert classes(tables, ONE_WAY) == ["NOTIFICATION", "NOTIFICATION", "PARAMETER_STATUS", "SERVER_ERROR"]


def test_an_error_at_commit_is_the_last_statement_s(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, parse("", "INSERT INTO t VALUES ($1)") + bind("", b"1") + execute() + SYNC),
        (SERVER, PARSED + BOUND + done("INSERT 0 1") + failed("23503") + READY),
        (CLIENT, query("SELECT 1")),
        (SERVER, done() + READY),
    )
    assert calls(tables) == [("EXECUTE INSERT INTO t VALUES (?)", int("23503", 36)), ("SELECT ?", 0)]


def test_statements_that_are_not_known_any_more_are_named(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, bind("gone", b"1") + execute() + SYNC),
        (SERVER, BOUND + done() + READY),
    )
    assert calls(tables) == [("EXECUTE (text unseen)", 0)]


def test_thousands_of_statements_and_portals_stay_bounded(tmp_path: Path) -> None:
    parts = []
    for n in range(1500):
        parts.append((CLIENT, parse(f"s{n}", "SELECT 1") + bind(f"s{n}", portal=f"p{n}") + SYNC))
        parts.append((SERVER, PARSED + BOUND + READY))
    parts.append((CLIENT, execute("p1499") + SYNC))
    parts.append((SERVER, done() + READY))
    tables = talk(tmp_path, *parts)
    assert calls(tables)[-1] == ("EXECUTE SELECT ?", 0)
    assert tables.counter("postgres.statement_evicted") == 1500 - 1023


@pytest.mark.parametrize("length", [0, 3, 0x40000000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_lengths_that_cannot_be_are_named(length: int, tmp_path: Path) -> None:
    bad = b"Q" + struct.pack("!I", length) + b"SELECT 1\0"
    tables = talk(
        tmp_path,
        (CLIENT, bad),
        (CLIENT, query("SELECT 2")),
        (SERVER, done() + READY),
    )
    assert tables.counter("postgres.bad_client_message") == 1
    assert calls(tables) == [("SELECT ?", 0)]


def test_protocol_3_2_and_gssapi(tmp_path: Path) -> None:
    body = struct.pack("!I", 3 << 16 | 2) + b"user\0tap\0\0"
    tables = talk(
        tmp_path,
        (CLIENT, struct.pack("!II", 8, 80877104)),
        (SERVER, b"N"),
        (CLIENT, struct.pack("!I", 4 + len(body)) + body),
        (SERVER, message("v", struct.pack("!II", 3 << 16, 0)) + message("K", b"\0" * 260) + READY),
        (CLIENT, query("SELECT 1")),
        (SERVER, done() + READY),
        login=False,
    )
    assert calls(tables) == [("GSSENC_REQUEST", 0), ("SELECT ?", 0)]
    sealed = talk(
        tmp_path,
        (CLIENT, struct.pack("!II", 8, 80877104)),
        (SERVER, b"G"),
        (CLIENT, b"\0\0\0\4seal"),
        (SERVER, b"\0\0\0\4seal"),
        login=False,
    )
    assert calls(sealed) == [("GSSENC_REQUEST", 0)]
    assert sealed.counter("unparsed.postgres.gss_encrypted") == 16
