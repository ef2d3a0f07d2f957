"""PostgreSQL as real clients speak it: calls, classes, statuses and evidence of recorded connections."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, unaccounted
from dissect_checks import (
    ERROR,
    INTERIM,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    check_late_start,
    check_loss,
    check_segmentation,
    read,
)
from postgres_messages import (
    BOUND,
    COPIED,
    COPY_IN,
    FLUSH,
    PARSED,
    PCAPS,
    READY,
    SYNC,
    bind,
    calls,
    classes,
    done,
    execute,
    failed,
    message,
    parse,
    query,
    talk,
)

from tapscope.store.codes import Protocol

NAMES = sorted(path.name for path in PCAPS.glob("*.pcap*"))

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
