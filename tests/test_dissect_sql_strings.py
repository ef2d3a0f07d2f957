"""Literals are masked however the server reads a backslash: MySQL, PostgreSQL, Avatica and C-JDBC."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER
from cjdbc_messages import speak
from dissect_checks import calls_of, talk, talk_without
from postgres_messages import LOGGED_IN, READY, bind, done, execute, message, parse, startup

from tapscope import capture
from tapscope.store.codes import Protocol, TokenKind

Turn = tuple[int, bytes]

DIRECTORY = rb"select a from u where p='C:\' and w='hunter2'"  # where a backslash is a character
APOSTROPHE = rb"select a from u where p='it\'s hunter2' and w='b'"  # where it escapes
MASKED, DOUBTED = "select a from u where p=? and w=?", "select a from u where p=? ..."
SHIFT_JIS = b"select a from u where p='\x83\x5c' and w='hunter2'"
AUTOCOMMIT, NO_BACKSLASH_ESCAPES = 0x0002, 0x0200
UTF8MB4, SJIS, GBK = 45, 13, 28
CAPABILITIES = (
    0x0001 | 0x0200 | 0x2000 | 0x8000
)  # long password, protocol 4.1, transactions, secure connection


def packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def ok(status: int = AUTOCOMMIT, number: int = 1) -> Turn:
    return SERVER, packet(number, b"\0\0\0" + struct.pack("<HH", status, 0))


def command(text: bytes, code: int = 3) -> Turn:
    return CLIENT, packet(0, bytes([code]) + text)


def greeting(status: int = AUTOCOMMIT, collation: int = UTF8MB4) -> Turn:
    head = b"\x0a8.0.36\0" + struct.pack("<I", 7) + b"12345678\0" + struct.pack("<H", CAPABILITIES)
    return SERVER, packet(0, head + struct.pack("<BHHB", collation, status, 0, 21) + bytes(10) + bytes(13))


def login(collation: int = UTF8MB4) -> Turn:
    head = struct.pack("<IIB", CAPABILITIES, 1 << 24, collation)
    return CLIENT, packet(1, head + bytes(23) + b"tap\0" + b"\0")


def change_of_user(collation: int) -> Turn:
    return command(b"tap\0\x02pwdb\0" + struct.pack("<H", collation) + b"\0", 17)


def mysql(
    tmp_path: Path, *turns: Turn, status: int = AUTOCOMMIT, collation: int = UTF8MB4
) -> capture.CaptureTables:
    before = (greeting(status), login(collation), ok(status, 2))
    return talk(tmp_path, *turns, port=3306, before=before)


def last_class(tables: capture.CaptureTables, protocol: Protocol = Protocol.MYSQL) -> str:
    """Of the last request; what is secret is in no class."""
    assert not [text for _, text in tables.classes if "hunter2" in text]
    return calls_of(tables, protocol)[-1][0]


def test_a_backslash_is_a_character_where_the_server_s_status_says_so(tmp_path: Path) -> None:
    plain = AUTOCOMMIT | NO_BACKSLASH_ESCAPES
    tables = mysql(tmp_path, command(DIRECTORY), ok(plain), status=plain)
    assert last_class(tables) == MASKED
    tables = mysql(tmp_path, command(b"SET sql_mode=@@x"), ok(plain), command(DIRECTORY), ok(plain))
    assert last_class(tables) == MASKED
    back = command(b"SET sql_mode=''"), ok()
    tables = mysql(tmp_path, *back, command(APOSTROPHE), ok(), status=plain)
    assert last_class(tables) == MASKED
    assert tables.counter("sql.quote_in_doubt") == 0


def test_the_status_at_the_end_of_rows_counts_too(tmp_path: Path) -> None:
    def ends(number: int) -> bytes:
        return packet(number, b"\xfe\0\0" + struct.pack("<H", AUTOCOMMIT | NO_BACKSLASH_ESCAPES))

    column = b"\3def" + b"\0" * 5 + b"\x0c" + struct.pack("<HIBHB", 33, 9, 253, 0, 0) + b"\0\0"
    rows = packet(1, b"\1") + packet(2, column) + ends(3) + packet(4, b"\1x") + ends(5)
    tables = mysql(tmp_path, command(b"call p()"), (SERVER, rows), command(DIRECTORY), ok())
    assert last_class(tables) == MASKED


@pytest.mark.parametrize(
    "turns",
    [
        (command(b"SET NAMES sjis"), ok()),
        (command(b"/* pool */ set  names 'cp932'"), ok()),
        (command(b"/*!40101 SET CHARACTER_SET_CLIENT = gbk */"), ok()),
        (change_of_user(GBK), ok()),
        (command(b"SET NAMES utf8mb4"), ok(), command(b"SET @x=1, character_set_client=Big5"), ok()),
    ],
)
def test_a_backslash_that_may_belong_to_a_character_ends_what_is_shown(
    turns: tuple[Turn, ...], tmp_path: Path
) -> None:
    tables = mysql(tmp_path, *turns, command(SHIFT_JIS), ok())
    assert last_class(tables) == DOUBTED
    assert tables.counter("sql.quote_in_doubt") == 1
    tables = mysql(tmp_path, *turns, command(APOSTROPHE), ok())
    assert last_class(tables) == MASKED


def test_the_character_set_is_that_of_the_login_until_another_is_named(tmp_path: Path) -> None:
    assert last_class(mysql(tmp_path, command(SHIFT_JIS), ok(), collation=SJIS)) == DOUBTED
    escaped = b"select a from u where p='\xe9\\'hunter2' and w='b'"
    for turns in ((command(b"SET NAMES latin1"), ok()), (change_of_user(UTF8MB4), ok())):
        assert last_class(mysql(tmp_path, *turns, command(escaped), ok(), collation=SJIS)) == MASKED


def test_a_backtick_that_may_belong_to_a_character_opens_no_name(tmp_path: Path) -> None:
    tables = mysql(tmp_path, command(b"select a from \x83\x60 where w='hunter2'"), ok(), collation=SJIS)
    assert last_class(tables) == "select a from ..."


def test_a_connection_that_was_joined_late_is_in_doubt_until_a_status_is_seen(tmp_path: Path) -> None:
    turns = [greeting(), login(), ok(AUTOCOMMIT, 2)]
    late = [command(APOSTROPHE), ok(), command(APOSTROPHE), ok()]
    tables = talk_without(tmp_path, 3306, {0, 1, 2}, *turns, *late)
    assert [text for text, _ in calls_of(tables, Protocol.MYSQL)] == [DOUBTED, MASKED]


def settings(**parameters: str) -> bytes:
    return b"".join(message("S", f"{name}\0{value}\0".encode()) for name, value in parameters.items())


def postgres(tmp_path: Path, text: bytes, **parameters: str) -> capture.CaptureTables:
    before = (CLIENT, startup()), (SERVER, settings(**parameters) + LOGGED_IN)
    turns = (CLIENT, message("Q", text + b"\0")), (SERVER, done() + READY)
    return talk(tmp_path, *turns, port=5432, before=before)


@pytest.mark.parametrize(
    ("text", "parameters", "shown"),
    [
        (APOSTROPHE, {"standard_conforming_strings": "off"}, MASKED),
        (DIRECTORY, {"standard_conforming_strings": "on"}, MASKED),
        (APOSTROPHE, {}, DOUBTED),
        (DIRECTORY, {}, DOUBTED),
        (b"select E'a'\n'b\\'hunter2', 'c'", {"standard_conforming_strings": "on"}, "select ? ?, ?"),
        (b"select E'a\\'hunter2', 'c'", {}, "select ?, ?"),
        (b"select E'\x83\\', 'hunter2'", {"client_encoding": "SJIS"}, "select ? ..."),
        (b"select E'\xc3\xa9\\'hunter2', 'c'", {"client_encoding": "UTF8"}, "select ?, ?"),
    ],
)
def test_strings_are_read_as_the_server_s_parameters_say(
    text: bytes, parameters: dict[str, str], shown: str, tmp_path: Path
) -> None:
    assert last_class(postgres(tmp_path, text, **parameters), Protocol.POSTGRES) == shown


def test_a_parameter_may_change_and_prepared_statements_follow_it(tmp_path: Path) -> None:
    run = parse("", APOSTROPHE.decode()) + bind("") + execute() + message("S")
    before = (CLIENT, startup()), (SERVER, settings(standard_conforming_strings="on") + LOGGED_IN)
    tables = talk(
        tmp_path,
        (CLIENT, message("Q", b"set standard_conforming_strings=off\0")),
        (SERVER, settings(standard_conforming_strings="off") + done("SET") + READY),
        (CLIENT, run),
        (SERVER, message("1") + message("2") + done() + READY),
        port=5432,
        before=before,
    )
    assert last_class(tables, Protocol.POSTGRES) == f"EXECUTE {MASKED}"


def avatica(tmp_path: Path, text: str) -> capture.CaptureTables:
    call = json.dumps({"request": "prepareAndExecute", "connectionId": "c", "statementId": 1, "sql": text})
    said = []
    for head, body in ((b"POST / HTTP/1.1", call), (b"HTTP/1.1 200 OK", '{"response":"executeResults"}')):
        fields = f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        said.append(head + fields.encode())
    return talk(tmp_path, (CLIENT, said[0]), (SERVER, said[1]), port=8765)


def cjdbc(tmp_path: Path, text: str) -> capture.CaptureTables:
    before = (
        (CLIENT, speak.login()),
        (SERVER, speak.boolean(True) + speak.boolean(False) + speak.text("none")),
    )
    turns = (CLIENT, speak.write(text)), (SERVER, speak.text("OK") + speak.integer(1))
    return talk(tmp_path, *turns, port=25322, before=before)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (DIRECTORY.decode(), DOUBTED),
        (APOSTROPHE.decode(), DOUBTED),
        (r"select a from u where p='C:\\' and w='it''s C:\tmp hunter2'", MASKED),
    ],
)
def test_where_the_database_is_not_known_nothing_in_doubt_is_shown(
    text: str, shown: str, tmp_path: Path
) -> None:
    assert last_class(avatica(tmp_path, text), Protocol.AVATICA) == f"prepareAndExecute {shown}"
    assert last_class(cjdbc(tmp_path, text), Protocol.CJDBC).endswith(f" {shown}")


def test_a_statement_in_doubt_hashes_as_it_does_on_the_database_s_side(tmp_path: Path) -> None:
    plain = AUTOCOMMIT | NO_BACKSLASH_ESCAPES
    hashes = set()
    for tables in (
        avatica(tmp_path, DIRECTORY.decode()),
        mysql(tmp_path, command(DIRECTORY), ok(plain), status=plain),
        postgres(tmp_path, DIRECTORY, standard_conforming_strings="on"),
    ):
        evidence = tables.evidence
        hashes.add(evidence["hash"][evidence["kind"] == TokenKind.STATEMENT].item())
    assert len(hashes) == 1
