"""PostgreSQL that no recorded client speaks: bounds, rare messages, and lengths that cannot be."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER
from dissect_checks import ONE_WAY, SALT
from postgres_messages import (
    BOUND,
    CLOSED,
    FLUSH,
    NO_DATA,
    PARSED,
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
    row,
    talk,
)

from tapscope.capture import _native
from tapscope.store.codes import TokenKind


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


def test_an_error_ends_a_replication_stream(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, query("START_REPLICATION 0/0")),
        (SERVER, message("W", b"\0\0\0")),
        (SERVER, failed("58P01") + READY),
        (CLIENT, query("IDENTIFY_SYSTEM")),
        (SERVER, row(b"1") + done() + READY),
    )
    assert [status for _, status in calls(tables)] == [0, 0]
    assert calls(tables)[1] == ("IDENTIFY_SYSTEM", 0)
    assert classes(tables, ONE_WAY) == ["REPLICATION_END", "REPLICATION_END"]


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


def described(*names: str) -> bytes:
    """RowDescription of columns of type text."""
    columns = [name.encode() + b"\0" + struct.pack("!IHIhiH", 0, 0, 25, -1, -1, 0) for name in names]
    return message("T", struct.pack("!H", len(names)) + b"".join(columns))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (described("id", "title") + row(b"1", b"x") + done(), ": SELECT id, title"),
        (described("id") * 2 + done("SELECT 0"), ": SELECT id"),
        (described("a" * 300, "b") + done(), f": SELECT {'a' * 300}..."),
        (row(b"1", b"x") + done(), ": SELECT of 2 columns"),
        (row(b"1") + message("s"), ": SELECT of 1 column"),
        (done("INSERT 0 7"), ": INSERT"),
        (described("id") + row(b"1") + done("UPDATE 1"), ": UPDATE id"),
        # Nothing was found, and the client knew the columns; or it failed.
        (done("SELECT 0"), None),
        (failed(), None),
    ],
)
def test_a_statement_prepared_before_is_told_by_its_first_answer(
    answer: bytes, told: str | None, tmp_path: Path
) -> None:
    """All its executions have that class, and a number in binary is a value though its type was not seen."""
    run = bind("before", b"\x00\x00\x01\x07", None, binary=True) + execute() + SYNC
    tables = talk(
        tmp_path,
        (CLIENT, run),
        (SERVER, BOUND + answer + READY),
        (CLIENT, run),
        (SERVER, BOUND + failed("57014") + READY),
    )
    text = "EXECUTE (text unseen)" if told is None else f"EXECUTE (text unseen, 2 parameters){told}"
    status = int("42P01", 36) if answer == failed() else 0
    assert calls(tables) == [(text, status), (text, int("57014", 36))]
    assert tables.counter("postgres.statement_text_unseen") == 1
    evidence = tables.evidence
    numbers = evidence["hash"][evidence["kind"] == TokenKind.NUMBER]
    assert numbers.tolist() == [_native.token_hash(SALT, b"263")] * 2


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
