"""A C-JDBC 2.0 driver and controller, as bytes: every command and every form of answer.

C-JDBC's original programs are in no package registry, so this speaks their protocol from its description
(docs/protocols/cjdbc.md). Run it to make the captures beside it; tests take messages from here.

    python3 cjdbc_dialogue.py            # writes cjdbc_every_command.pcap and sequoia.pcap
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK_UNITS = 21333
PORT = 25322


def text(value: str | None, wide: bool = False) -> bytes:
    """STR: a bool, the number of UTF-16 units, then chunks of modified UTF-8 (`wide`: UTF-8, Sequoia)."""
    if value is None:
        return b"\0"
    raw = value.encode("utf-16-be", "surrogatepass")
    units = [raw[i : i + 2] for i in range(0, len(raw), 2)]
    out = b"\1" + struct.pack("!i", len(units))
    for at in range(0, len(units), CHUNK_UNITS):
        chunk = units[at : at + CHUNK_UNITS]
        if wide:
            data = b"".join(chunk).decode("utf-16-be").encode()
            out += struct.pack("!i", len(data)) + data
        else:
            data = b"".join(_modified(int.from_bytes(unit, "big")) for unit in chunk)
            out += struct.pack("!H", len(data)) + data
    return out


def _modified(unit: int) -> bytes:
    if unit == 0:
        return b"\xc0\x80"
    return chr(unit).encode("utf-8", "surrogatepass")


def boolean(value: bool) -> bytes:
    """One byte."""
    return b"\1" if value else b"\0"


def integer(value: int) -> bytes:
    """Four bytes."""
    return struct.pack("!i", value)


def long(value: int) -> bytes:
    """Eight bytes."""
    return struct.pack("!q", value)


def optional(value: str | None) -> bytes:
    """A bool, and if it is true a STR."""
    return b"\0" if value is None else b"\1" + text(value)


# ---- commands ----


def login(database: str = "myDB", user: str = "user", password: str = "secret", version: int = 20) -> bytes:
    """The first message of a connection."""
    return integer(version) + text(database) + text(user) + text(password)


def statement(
    sql: str, skeleton: str | None = None, processed: bool = True, auto_commit: bool = True
) -> bytes:
    """What every command with a statement carries."""
    head = text(sql) + boolean(True) + text("\n") + integer(0)
    return head + boolean(auto_commit) + boolean(processed) + optional(skeleton)


def result_parameters(max_rows: int = 0, fetch_size: int = 0, cursor: str | None = None) -> bytes:
    """How many rows are wanted, and the cursor's name."""
    return integer(max_rows) + integer(fetch_size) + optional(cursor)


def read(sql: str, fetch_size: int = 0, cursor: str | None = None, skeleton: str | None = None) -> bytes:
    """ExecReadRequest."""
    return integer(0) + statement(sql, skeleton) + result_parameters(0, fetch_size, cursor)


def write(sql: str, kind: int = 3, skeleton: str | None = None, processed: bool = True) -> bytes:
    """ExecWriteRequest; `kind` is 1 DELETE, 2 INSERT, 3 UPDATE, 20 CREATE, 21 ALTER, 22 DROP."""
    keys = boolean(False) if kind == 2 else b""
    return integer(1) + integer(kind) + statement(sql, skeleton, processed) + keys


def command(code: int, *arguments: bytes) -> bytes:
    """Any command."""
    return integer(code) + b"".join(arguments)


# ---- answers ----

OK = text("OK")
NULL_RESULT = text("null ResultSet")

TYPES = {
    "T-String": (12, "VARCHAR", "java.lang.String"),
    "T-BigDecimal": (3, "DECIMAL", "java.math.BigDecimal"),
    "T-Boolean": (-7, "BIT", "java.lang.Boolean"),
    "T-Integer": (4, "INT", "java.lang.Integer"),
    "T-Long": (-5, "BIGINT", "java.lang.Long"),
    "T-Float": (7, "FLOAT", "java.lang.Float"),
    "T-Double": (8, "DOUBLE", "java.lang.Double"),
    "T-Byte[]": (-4, "BLOB", "[B"),
    "T-Blob": (-4, "BLOB", "java.sql.Blob"),
    "T-SqlDate": (91, "DATE", "java.sql.Date"),
    "T-SqlTime": (92, "TIME", "java.sql.Time"),
    "T-SqlTimestamp": (93, "TIMESTAMP", "java.sql.Timestamp"),
}

Value = str | int | float | bool | bytes | tuple[int, int] | None


def value_of(tag: str, value: Value) -> bytes:
    """A value that is not null, by its type tag."""
    if tag in ("T-String", "T-BigDecimal"):
        return text(str(value))
    if tag == "T-Boolean":
        return boolean(bool(value))
    if tag in ("T-Byte[]", "T-Blob"):
        assert isinstance(value, bytes)
        return integer(len(value)) + value
    if tag == "T-SqlTimestamp":
        assert isinstance(value, tuple)
        return long(value[0]) + integer(value[1])
    form = {"T-Integer": "!i", "T-Long": "!q", "T-Float": "!f", "T-Double": "!d", "T-SqlDate": "!q"}
    return struct.pack(form.get(tag, "!i"), value)


def column(name: str, tag: str, table: str | None = "story") -> bytes:
    """The description of a column."""
    code, database_type, java_class = TYPES[tag]
    names = (
        optional(table) + text(name) + integer(11) + integer(code) + text(database_type) + text(java_class)
    )
    return names + b"\0\1\0" + integer(1) + b"\0\1\0\1\1" + integer(11) + integer(0)


def rows_of(tags: Sequence[str], rows: Sequence[Sequence[Value]], more: bool) -> bytes:
    """Rows, and whether there are more."""
    out = integer(len(rows))
    for row in rows:
        out += text("T-Row") + b"".join(boolean(value is None) for value in row)
        out += b"".join(
            value_of(tag, value) for tag, value in zip(tags, row, strict=True) if value is not None
        )
    return out + boolean(more)


def result_set(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Value]], cursor: str | None = None
) -> bytes:
    """An answer with rows; with a `cursor` more of them are to be fetched."""
    tags = [tag for _, tag in columns]
    out = text("T-ResultSet") + integer(len(columns)) + b"".join(column(*each) for each in columns)
    out += text("T-Column types") + integer(len(rows))
    if rows:
        out += b"".join(text(tag) for tag in tags)
    out += rows_of(tags, rows, cursor is not None)
    return out + (text(cursor) if cursor is not None else b"")


def exception(code: int, depth: int = 1, kind: str = "T-BackendException", frames: int = 12) -> bytes:
    """An exception with `depth` causes below it and a stack trace each."""

    def level(left: int) -> bytes:
        out = text("Request 17 failed on all backends") + boolean(left > 0)
        if left > 0:
            out += level(left - 1)
        out += integer(frames)
        for line in range(frames):
            file = None if line % 5 == 4 else "LoadBalancer.java"
            out += text("org.example.controller.LoadBalancer") + text("execute") + text(file) + integer(line)
        return out + text("42S02" if left == depth else None) + integer(code if left == depth else 0)

    return text("T-Exception") + text(kind) + level(depth)


# ---- a whole connection ----


@dataclass(frozen=True)
class Turn:
    """One command with its answer (empty: there is none), and the class that it must get."""

    command: bytes
    answer: bytes
    name: str
    status: int = 0
    error: bool = False


STORY = (("id", "T-Integer"), ("title", "T-String"), ("body", "T-String"))
ALL_TYPES = tuple((tag.lower().strip("t-[]"), tag) for tag in TYPES)
ALL_ROW: tuple[Value, ...] = (
    "a text \u00e9\u4e2d\0",
    "12345678901234567890.50",
    True,
    7,
    2**40,
    0.5,
    0.25,
    bytes(range(256)),
    b"\xff",
    1_700_000_000_000,
    3_600_000,
    (1_700_000_000_000, 123_456_789),
)


def every_command() -> Iterator[Turn]:
    """One connection that uses every command and every form of answer."""
    yield Turn(login(), boolean(True) + boolean(True) + text("none"), "LOGIN")
    select = "SELECT id, title, body FROM story WHERE id = {} /*ID=s{}*/"
    read_class = "ExecReadRequest SELECT id, title, body FROM story WHERE id = ?"
    skeleton = "SELECT id, title, body FROM story WHERE id = ? /*ID=s?*/"
    for i in (42, 43):
        rows = [(i, f"title {i}", None)]
        yield Turn(read(select.format(i, i), skeleton=skeleton), result_set(STORY, rows), read_class)
    yield Turn(read("SELECT id FROM story WHERE id = 0"), result_set(STORY[:1], []), read_only("id = ?"))
    yield Turn(read("SELECT id FROM story WHERE id = -1"), NULL_RESULT, read_only("id = ?"))
    yield Turn(
        read("SELECT * FROM every_type"),
        result_set(ALL_TYPES, [ALL_ROW, (None,) * len(ALL_ROW), ALL_ROW]),
        "ExecReadRequest SELECT * FROM every_type",
    )
    yield Turn(
        read("SELECT nope FROM story"), exception(1054), "ExecReadRequest SELECT nope FROM story", 1054, True
    )
    yield Turn(read("SELECT 1"), exception(0, 0, "T-CoreException"), "ExecReadRequest SELECT ?", 0, True)
    long_list = "SELECT id FROM story WHERE title IN ('" + "','".join(f"t{i}" for i in range(9000)) + "')"
    yield Turn(read(long_list), result_set(STORY[:1], [(1,)]), read_only("title IN (?+)"))

    insert = "INSERT INTO story(id, title) VALUES({}, {})"
    insert_class = "INSERT INTO story(id, title) VALUES(?, ?)"
    yield Turn(
        write(insert.format(44, "'it''s \U0001f600'"), 2), OK + integer(1), "ExecWriteRequest " + insert_class
    )
    marked = insert.format("<!%I|45|!%>", "<!%S|it's|!%>")
    yield Turn(
        write(marked, 2, insert.format("?", "?"), processed=False),
        OK + integer(1),
        "ExecWriteRequest " + insert_class,
    )
    yield Turn(
        write("UPDATE story SET body = <!%S|N||!%>, title = <!%N||!%> WHERE id = <!%L|44|!%>", 3, "?", False),
        OK + integer(1),
        "ExecWriteRequest UPDATE story SET body = NULL, title = NULL WHERE id = ?",
    )
    for kind, sql, name in (
        (1, "DELETE FROM story WHERE id = 44", "DELETE FROM story WHERE id = ?"),
        (20, "CREATE TABLE t9(a INT)", "CREATE TABLE t9(a INT)"),
        (21, "ALTER TABLE t9 ADD b INT", "ALTER TABLE t9 ADD b INT"),
        (22, "DROP TABLE t9", "DROP TABLE t9"),
    ):
        yield Turn(write(sql, kind), OK + integer(0), "ExecWriteRequest " + name)
    with_keys = command(
        2, integer(2), statement(insert.format(46, "'x'")), boolean(True), result_parameters()
    )
    keys = result_set((("GENERATED_KEY", "T-Long"),), [(46,)])
    yield Turn(with_keys, keys, "ExecWriteRequestWithKeys " + insert_class)
    call = statement("{call report(7)}")
    yield Turn(
        command(3, call, boolean(True), result_parameters()),
        result_set(STORY, [(7, "t", "b")]),
        "ExecReadStoredProcedure {call report(?)}",
    )
    yield Turn(command(4, call, boolean(False)), OK + integer(3), "ExecWriteStoredProcedure {call report(?)}")

    transaction = 281_474_976_710_657
    yield Turn(command(20), OK + long(transaction), "Begin")
    yield Turn(command(23, text("before")), OK + boolean(True), "SetNamedSavepoint")
    yield Turn(command(24), OK + integer(3), "SetUnnamedSavepoint")
    yield Turn(command(26, text("before")), OK + boolean(True), "RollbackToSavepoint")
    yield Turn(command(25, text("3")), OK + boolean(True), "ReleaseSavepoint")
    yield Turn(command(21), OK + long(transaction + 1), "Commit")
    yield Turn(command(22), OK + long(transaction + 2), "Rollback")
    yield Turn(command(35), OK + boolean(True), "SetAutoCommit")
    yield Turn(command(34, boolean(False), long(transaction)), b"", "RestoreConnectionState")
    yield Turn(command(34, boolean(True)), b"", "RestoreConnectionState")
    yield Turn(command(39, integer(2)), OK + boolean(True), "SetTransactionIsolation")

    scan = "SELECT id, title, body FROM story"
    pages = [[(10 * page + i, f"title {i}", "b" * 300) for i in range(10)] for page in range(4)]
    tags = [tag for _, tag in STORY]
    cursor = "786814181"
    yield Turn(read(scan, 10), result_set(STORY, pages[0], cursor), "ExecReadRequest " + scan)
    for page, more in ((1, True), (2, True), (3, False)):
        yield Turn(
            command(32, text(cursor), integer(10)),
            OK + rows_of(tags, pages[page], more),
            "FetchNextResultSetRows " + scan,
        )
    yield Turn(command(33, text(cursor)), exception(0, 0, "T-CoreException"), "CloseRemoteResultSet", 0, True)
    yield Turn(read(scan, 10, "mine"), result_set(STORY, pages[0], "mine"), "ExecReadRequest " + scan)
    yield Turn(command(33, text("mine")), OK + boolean(True), "CloseRemoteResultSet")

    for code, name, answer in (
        (36, "GetCatalog", "myDB"),
        (50, "GetVirtualDatabaseName", "myDB"),
        (51, "GetControllerVersion", "2.0.2"),
        (61, "GetDatabaseProductName", "MySQL"),
    ):
        yield Turn(command(code), OK + text(answer), name)
    yield Turn(command(38, text("other")), OK + boolean(True), "SetCatalog")
    metadata = result_set((("TABLE_CAT", "T-String"), ("N", "T-Integer")), [("myDB", 1)])
    three = text("myDB") + text(None) + text("%")
    four = three + text("%")
    yield Turn(command(52, three, boolean(False)), metadata, "GetTables")
    yield Turn(
        command(52, three, boolean(True), integer(2), text("TABLE"), text("VIEW")), metadata, "GetTables"
    )
    yield Turn(command(52, three, boolean(True), integer(0)), metadata, "GetTables")
    for code, arguments, name in (
        (37, b"", "GetCatalogs"),
        (53, four, "GetColumns"),
        (54, three, "GetPrimaryKeys"),
        (55, three, "GetProcedures"),
        (56, four, "GetProcedureColumns"),
        (58, b"", "GetTableTypes"),
        (59, three, "GetTablePrivileges"),
        (60, b"", "GetSchemas"),
        (62, four, "GetAttributes"),
        (63, three + integer(1) + boolean(True), "GetBestRowIdentifier"),
        (64, four, "GetColumnPrivileges"),
        (65, three + three, "GetCrossReference"),
        (66, three, "GetExportedKeys"),
        (67, three, "GetImportedKeys"),
        (68, three + boolean(True) + boolean(False), "GetIndexInfo"),
        (69, three, "GetSuperTables"),
        (70, three, "GetSuperTypes"),
        (71, b"", "GetTypeInfo"),
        (72, three + boolean(True) + integer(2) + integer(2000) + integer(2001), "GetUDTs"),
        (73, three, "GetVersionColumns"),
    ):
        yield Turn(command(code, arguments), metadata, name)
    for tag, value in (("T-Integer", 151), ("T-Boolean", True), ("T-String", "\\")):
        key = text("getMaxConnections()")
        yield Turn(command(80, key), OK + text(tag) + value_of(tag, value), "GetStaticMetadata")
    yield Turn(command(31), b"", "Reset")
    yield Turn(read(select.format(47, 47)), result_set(STORY, [(47, "t", None)]), read_class)
    yield Turn(command(30), OK + boolean(True), "Close")


def read_only(condition: str) -> str:
    """Class of a read of ids."""
    return f"ExecReadRequest SELECT id FROM story WHERE {condition}"


def refused_login() -> Iterator[Turn]:
    """A login with a wrong password."""
    answer = boolean(False) + text("User wrong not found or bad password")
    yield Turn(login(user="wrong"), answer, "LOGIN", -1, True)


PROMPT, MARKER = 0x1FA1501F, 0x00B015CA


def sequoia() -> Iterator[Turn]:
    """A connection of Sequoia, as far as its description goes: markers before commands, prompts after."""

    def wide(value: str) -> bytes:
        return text(value, wide=True)

    prompt = struct.pack("!I", PROMPT)
    marker = struct.pack("!I", MARKER)
    version = integer(8 << 16 | 13)
    yield Turn(version + wide("myDB") + wide("user") + wide("secret"), b"\1\1", "LOGIN")
    yield Turn(wide("\n") + boolean(False) + boolean(False), prompt, "LOGIN")
    sql = (
        wide("SELECT id FROM story WHERE id = 42")
        + boolean(True)
        + integer(0)
        + boolean(True)
        + boolean(False)
    )
    yield Turn(
        marker + integer(0) + sql + integer(0) + integer(0) + boolean(False),
        wide("T-ResultSet") + b"\0" * 40 + prompt,
        "StatementExecuteQuery SELECT id FROM story WHERE id = ?",
    )
    template = wide("UPDATE story SET title = ? WHERE id = ?") + boolean(True) + integer(0) + boolean(True)
    yield Turn(
        marker + integer(1) + template + boolean(True) + wide("<!%S|new|!%><!%I|42|!%>"),
        wide("OK") + long(17) + wide("OK") + boolean(False) + wide("OK") + integer(1) + prompt,
        "StatementExecuteUpdate UPDATE story SET title = ? WHERE id = ?",
    )
    yield Turn(marker + integer(21), wide("OK") + long(17) + prompt, "Commit")


# ---- packets ----

SEGMENT = 1448
BUFFER = 8192
START_NS = 1_700_000_000_000_000_000


def packets(turns: Sequence[Turn], client_port: int, start_ns: int = START_NS) -> Iterator[tuple[int, bytes]]:
    """(time, Ethernet frame) of one TCP connection; the controller takes 2 ms, the driver thinks 5 ms."""
    next_seq = [1000, 5000]
    now = start_ns

    def frame(direction: int, flags: int, data: bytes = b"") -> tuple[int, bytes]:
        ports = (client_port, PORT) if direction == 0 else (PORT, client_port)
        hosts = (b"\x0a\0\0\x01", b"\x0a\0\0\x02")
        ack = next_seq[1 - direction] if flags & 16 else 0
        tcp = struct.pack("!HHIIBBHHH", *ports, next_seq[direction], ack, 0x50, flags, 65535, 0, 0)
        total = 40 + len(data)
        ip = (
            struct.pack("!BBHHHBBH", 0x45, 0, total, 0, 0x4000, 64, 6, 0)
            + hosts[direction]
            + hosts[1 - direction]
        )
        next_seq[direction] += len(data) + (1 if flags & 3 else 0)
        return now, b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + ip + tcp + data

    def send(direction: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        nonlocal now
        for at in range(0, len(data), BUFFER):
            block = data[at : at + BUFFER]
            for begin in range(0, len(block), SEGMENT):
                now += 20_000
                yield frame(
                    direction, 24 if begin + SEGMENT >= len(block) else 16, block[begin : begin + SEGMENT]
                )

    yield frame(0, 2)
    now += 100_000
    yield frame(1, 18)
    now += 100_000
    yield frame(0, 16)
    for turn in turns:
        now += 5_000_000
        yield from send(0, turn.command)
        if turn.answer:
            now += 2_000_000
            yield from send(1, turn.answer)
            now += 50_000
            yield frame(0, 16)
    now += 1_000_000
    yield frame(1, 17)
    now += 100_000
    yield frame(0, 17)
    now += 100_000
    yield frame(1, 16)


def write_pcap(path: Path, frames: Sequence[tuple[int, bytes]]) -> None:
    """A classic pcap file with ns."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for time_ns, frame in frames:
            seconds, rest = divmod(time_ns, 10**9)
            out.write(struct.pack("<IIII", seconds, rest, len(frame), len(frame)) + frame)


def main() -> None:
    """Write the captures."""
    here = Path(__file__).resolve().parent
    frames = [
        *packets(list(every_command()), 40001),
        *packets(list(refused_login()), 40002, START_NS + 10**10),
    ]
    write_pcap(here / "cjdbc_every_command.pcap", frames)
    write_pcap(here / "sequoia.pcap", list(packets(list(sequoia()), 40003)))


if __name__ == "__main__":
    main()
