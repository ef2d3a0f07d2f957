"""Apache Avatica (JDBC over HTTP) between the real driver and server, in JSON and in protocol buffers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, message_rows, read_pcap, unaccounted, write_pcap

from tapscope import capture
from tapscope.store.codes import ID_LIKE, MessageFlag, MessageKind, Protocol, TokenKind

FOLDER = Path(__file__).resolve().parent.parent / "pcaps" / "avatica"
CODINGS = ("json", "protobuf")
SALT = b"sixteen bytes ok"

INSERT = "INSERT INTO story(id, title, votes, score, open, posted, body) VALUES(?, ?, ?, ?, ?, ?, ?)"
LOOKUP = "SELECT title, votes FROM story WHERE id = ?"
SCAN = "SELECT id, title, votes FROM story WHERE id >= ? ORDER BY id"
CREATE = (
    "CREATE TABLE story(id INT PRIMARY KEY, title VARCHAR(?), votes BIGINT, score DOUBLE, open BOOLEAN, "
    "posted DATE, body VARBINARY(?))"
)
CALLS = [
    "openConnection",
    "connectionSync",
    "createStatement",
    f"prepareAndExecute {CREATE}",
    "prepareAndExecute INSERT INTO story(id, title) VALUES(?, ?)",
    "prepareAndExecute SELECT id, title FROM story WHERE id = ?",
    "prepareAndExecuteBatch INSERT INTO story(id, title) VALUES(?, ?)",
    "prepareAndExecuteBatch UPDATE story SET votes = ? WHERE id = ?; ...",
    "prepareAndExecute SELECT nope FROM story",
    "closeStatement",
    f"prepare {INSERT}",
    *[f"execute {INSERT}"] * 2,
    *[f"executeBatch {INSERT}"] * 7,
    "closeStatement",
    f"prepare {LOOKUP}",
    *[f"execute {LOOKUP}"] * 4,
    "closeStatement",
    "connectionSync",
    "createStatement",
    "prepareAndExecute UPDATE story SET votes = ? WHERE id = ?",
    "commit",
    "prepareAndExecute UPDATE story SET votes = ? WHERE id = ?",
    "rollback",
    f"prepareAndExecute {SCAN}",
    *[f"fetch {SCAN}"] * 3,
    "closeStatement",
]
METADATA = ["getTables", "getColumns", "getCatalogs", "getSchemas", "getTableTypes", "getTypeInfo"]


def golden(coding: str) -> Path:
    return FOLDER / f"avatica_{coding}.pcap"


def read(path: Path, packets: list[Packet]) -> capture.CaptureTables:
    tables = capture.read_files([write_pcap(path / "a.pcap", packets)], salt=SALT)
    assert unaccounted(tables) == []
    return tables


def text_of(tables: capture.CaptureTables, row: int) -> str:
    class_id = int(tables.messages["class_id"][row])
    return tables.classes[class_id][1] if class_id >= 0 else ""


def requests(tables: capture.CaptureTables) -> list[str]:
    return [text_of(tables, int(row)) for row in np.flatnonzero(tables.messages["direction"] == 0)]


def tokens(tables: capture.CaptureTables, row: int, *kinds: TokenKind) -> list[tuple[int, int, int]]:
    """Slot, kind and hash of what is no made-up id."""
    e = tables.evidence
    of = (e["message"] == row) & np.isin(e["kind"], [int(kind) for kind in kinds])
    return sorted(zip(e["slot"][of].tolist(), e["kind"][of].tolist(), e["hash"][of].tolist(), strict=True))


def pairs(tables: capture.CaptureTables) -> set[tuple[int, int]]:
    m = tables.messages
    rows = np.flatnonzero(m["request"] >= 0)
    return {(int(m["tcp_seq"][m["request"][row]]), int(m["tcp_seq"][row])) for row in rows}


def turns(coding: str) -> list[tuple[int, bytes]]:
    """What the sides said in turn, from the golden capture: one connection without losses."""
    out: list[tuple[int, bytes]] = []
    next_seq: dict[int, int] = {}
    client_port = None
    for _, frame in read_pcap(golden(coding)):
        tcp = 14 + (frame[14] & 15) * 4
        port = int.from_bytes(frame[tcp : tcp + 2], "big")
        seq = int.from_bytes(frame[tcp + 4 : tcp + 8], "big")
        if frame[tcp + 13] & 2:
            client_port = client_port or port
            next_seq[port] = seq + 1
            continue
        data = frame[tcp + (frame[tcp + 12] >> 4) * 4 :]
        if not data or seq != next_seq[port]:
            continue
        next_seq[port] += len(data)
        side = CLIENT if port == client_port else SERVER
        if out and out[-1][0] == side:
            out[-1] = (side, out[-1][1] + data)
        else:
            out.append((side, data))
    return out


def talk(said: list[tuple[int, bytes]], cuts: bool = False, mss: int = 1448) -> list[Packet]:
    dialogue = Dialogue(server_port=8765).open()
    for side, data in said:
        dialogue.send(side, data, cuts=range(len(data)) if cuts else (), mss=mss)
    return dialogue.close().packets


def post(
    body: bytes | str, kind: str = "application/octet-stream", chunks: int = 0, extra: str = ""
) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: x\r\n" + framed(body, kind, chunks, extra)


def answer(body: bytes | str, status: int = 200, chunks: int = 0, extra: str = "") -> bytes:
    return b"HTTP/1.1 %d X\r\n" % status + framed(body, "application/json", chunks, extra)


def framed(body: bytes | str, kind: str, chunks: int, extra: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    head = f"Content-Type: {kind}\r\n{extra}"
    if not chunks:
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    out = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
    for at in range(0, len(data), chunks):
        part = data[at : at + chunks]
        out += b"%x\r\n" % len(part) + part + b"\r\n"
    return out + b"0\r\n\r\n"


def call(name: str, **members: Any) -> str:
    return json.dumps({"request": name, "connectionId": "8c555d8a-5128-4430-a944-1b29f45a49e4", **members})


ROWS = json.dumps(
    {
        "response": "executeResults",
        "missingStatement": False,
        "results": [
            {"response": "resultSet", "firstFrame": {"offset": 0, "rows": [[42, "it's", None, 1.5]]}}
        ],
    }
)


@pytest.mark.parametrize("coding", CODINGS)
def test_every_call_is_found_with_its_statement_and_answered(coding: str) -> None:
    tables = capture.read_files([golden(coding)], salt=SALT)
    assert unaccounted(tables) == []
    m = tables.messages
    assert (m["protocol"] == Protocol.AVATICA).all()
    found = requests(tables)
    assert found[: len(CALLS)] == CALLS
    rest = [name for name in found[len(CALLS) :] if name != "closeStatement"]
    assert rest == [*METADATA, "closeConnection"]
    answers = np.flatnonzero(m["kind"] == MessageKind.RESPONSE)
    assert (m["request"][answers] == answers - 1).all()
    failed = answers[(m["flags"][answers] & MessageFlag.ERROR) != 0]
    assert [text_of(tables, int(row) - 1) for row in failed] == ["prepareAndExecute SELECT nope FROM story"]
    assert m["status"][answers].tolist() == [500 if row in failed else 200 for row in answers]


def test_both_codings_give_the_same_classes_and_evidence() -> None:
    kinds = (TokenKind.NUMBER, TokenKind.TEXT, TokenKind.RESULT, TokenKind.STATEMENT)
    one, other = (capture.read_files([golden(coding)], salt=SALT) for coding in CODINGS)
    assert requests(one) == requests(other)
    for row in range(len(one.messages["conn"])):
        assert tokens(one, row, *kinds) == tokens(other, row, *kinds), text_of(one, row)


def test_a_value_hashes_alike_as_parameter_and_result() -> None:
    tables = capture.read_files([golden("json")], salt=SALT)
    found = [
        row for row in range(len(tables.messages["conn"])) if text_of(tables, row) == f"execute {LOOKUP}"
    ]
    of_45 = found[1]
    insert = next(row for row in range(of_45) if text_of(tables, row) == f"execute {INSERT}")
    title = tokens(tables, insert, TokenKind.TEXT)[0]
    votes = next(token for token in tokens(tables, insert, TokenKind.NUMBER) if token[0] == 2)
    results = tokens(tables, of_45 + 1, TokenKind.RESULT)
    assert [(slot, hash_) for slot, _, hash_ in results] == [(0, title[2]), (1, votes[2])]


def test_the_database_leg_has_the_same_statements() -> None:
    tables = capture.read_files([FOLDER / "avatica_mysql.pcap"], salt=SALT)
    m = tables.messages

    def statements(protocol: Protocol) -> set[int]:
        rows = np.flatnonzero((m["protocol"] == protocol) & (m["direction"] == 0))
        return {hash_ for row in rows for _, _, hash_ in tokens(tables, int(row), TokenKind.STATEMENT)}

    ours = statements(Protocol.AVATICA)
    assert len(ours) == 4
    assert ours <= statements(Protocol.MYSQL)


@pytest.mark.parametrize("coding", CODINGS)
def test_bytes_one_by_one_give_the_same_messages(coding: str, tmp_path: Path) -> None:
    said = [turn for turn in turns(coding) if len(turn[1]) < 1500]
    whole = message_rows(read(tmp_path, talk(said)), times=False)
    assert message_rows(read(tmp_path, talk(said, cuts=True)), times=False) == whole


@pytest.mark.parametrize("mss", [11, 257, 9000])
@pytest.mark.parametrize("coding", CODINGS)
def test_segments_of_any_size_give_the_same_messages(coding: str, mss: int, tmp_path: Path) -> None:
    said = turns(coding)
    whole = message_rows(read(tmp_path, talk(said)), times=False)
    assert message_rows(read(tmp_path, talk(said, mss=mss)), times=False) == whole
    assert len(whole) == len(said) == 102


@pytest.mark.parametrize("coding", CODINGS)
def test_the_loss_of_any_packet_pairs_no_answer_with_another_call(coding: str, tmp_path: Path) -> None:
    packets = talk(turns(coding))
    whole = read(tmp_path, packets)
    right = pairs(whole)
    names = dict(zip(whole.messages["tcp_seq"].tolist(), map(str, requests_by_row(whole)), strict=True))
    for lost in range(3, len(packets) - 3):
        tables = read(tmp_path, packets[:lost] + packets[lost + 1 :])
        m = tables.messages
        assert pairs(tables) <= right, lost
        untouched = (m["direction"] == 0) & (m["missing_bytes"] == 0) & (m["protocol"] == Protocol.AVATICA)
        for row in np.flatnonzero(untouched):
            name = names[int(m["tcp_seq"][row])]
            unseen = name.split(" ")[0] + " (statement not seen)"
            stale = bool(
                m["flags"][row] & MessageFlag.INFERRED
            )  # its statement's id was given to another one
            assert stale or text_of(tables, int(row)) in (name, unseen), lost


def requests_by_row(tables: capture.CaptureTables) -> list[str]:
    return [text_of(tables, row) for row in range(len(tables.messages["conn"]))]


@pytest.mark.parametrize("coding", CODINGS)
def test_a_capture_that_begins_or_ends_anywhere_gives_the_calls_between(coding: str, tmp_path: Path) -> None:
    packets = talk(turns(coding))
    whole = pairs(read(tmp_path, packets))
    for border in range(3, len(packets), 3):
        assert pairs(read(tmp_path, packets[border:])) <= whole
        assert pairs(read(tmp_path, packets[:border])) <= whole


def test_a_statement_prepared_on_one_connection_is_known_on_another(tmp_path: Path) -> None:
    sql = "SELECT * FROM story WHERE id = ?"
    handle = {"connectionId": "8c555d8a-5128-4430-a944-1b29f45a49e4", "id": 5}
    prepared = json.dumps({"response": "prepare", "statement": handle})
    execute = call("execute", statementHandle=handle, parameterValues=[{"type": "INTEGER", "value": 42}])
    fetch = call("fetch", statementId=5, offset=100)
    first = Dialogue(server_port=8765, client_port=5001).open()
    first.send(CLIENT, post(call("prepare", sql=sql))).send(SERVER, answer(prepared))
    second = Dialogue(server_port=8765, client_port=5002, now_ns=first.now_ns).open()
    for body in (execute, fetch):
        second.send(CLIENT, post(body)).send(SERVER, answer(ROWS))
    tables = read(tmp_path, first.packets + second.packets)
    assert requests(tables) == [f"{name} {sql}" for name in ("prepare", "execute", "fetch")]
    assert len(tokens(tables, 2, TokenKind.NUMBER)) == 1
    alone = read(tmp_path, second.packets)
    assert requests(alone) == ["execute (statement not seen)", "fetch (statement not seen)"]
    assert alone.counter("avatica.statement_not_seen") == 2


def test_a_closed_statement_is_forgotten(tmp_path: Path) -> None:
    said = []
    for body in (
        call("prepareAndExecute", statementId=5, sql="SELECT 1"),
        call("fetch", statementId=5),
        call("closeStatement", statementId=5),
        call("fetch", statementId=5),
    ):
        said += [(CLIENT, post(body)), (SERVER, answer(ROWS))]
    names = ["prepareAndExecute SELECT ?", "fetch SELECT ?", "closeStatement", "fetch (statement not seen)"]
    assert requests(read(tmp_path, talk(said))) == names


@pytest.mark.parametrize("chunks", [0, 1, 7, 100_000])
@pytest.mark.parametrize("packed", [False, True])
def test_chunks_and_compression_change_nothing(tmp_path: Path, chunks: int, packed: bool) -> None:
    body = call(
        "prepareAndExecute", statementId=1, sql="SELECT * FROM story WHERE id = 42 AND title = 'it''s'"
    )
    rows = gzip.compress(ROWS.encode()) if packed else ROWS.encode()
    coding = "Content-Encoding: gzip\r\n" if packed else ""
    tables = read(
        tmp_path,
        talk([(CLIENT, post(body, chunks=chunks)), (SERVER, answer(rows, chunks=chunks, extra=coding))]),
    )
    assert requests(tables) == ["prepareAndExecute SELECT * FROM story WHERE id = ? AND title = ?"]
    assert (tables.messages["protocol"] == Protocol.AVATICA).all()
    (_, _, number), _ = tokens(tables, 0, TokenKind.NUMBER, TokenKind.TEXT)
    assert (0, TokenKind.RESULT, number) in tokens(tables, 1, TokenKind.RESULT)
    assert len(tokens(tables, 1, TokenKind.RESULT)) == 2


def test_answers_that_cannot_be_read_are_opaque(tmp_path: Path) -> None:
    said = [
        (CLIENT, post(call("commit"))),
        (SERVER, answer(b"\x1f\x8b\x08garbage", extra="Content-Encoding: gzip\r\n")),
    ]
    tables = read(tmp_path, talk(said))
    assert tables.messages["flags"].tolist() == [0, MessageFlag.OPAQUE]
    assert tables.counter("avatica.unreadable_answer") == 1


def test_an_error_or_a_missing_statement_is_an_error_whatever_http_says(tmp_path: Path) -> None:
    error = json.dumps(
        {"response": "error", "exceptions": ["x" * 5000], "errorMessage": "no", "errorCode": -1}
    )
    missing = json.dumps({"response": "fetch", "missingStatement": True, "frame": None})
    said = []
    for body in (error, missing, ROWS):
        said += [(CLIENT, post(call("fetch", statementId=1))), (SERVER, answer(body))]
    tables = read(tmp_path, talk(said))
    assert [bool(flag & MessageFlag.ERROR) for flag in tables.messages["flags"][1::2]] == [True, True, False]
    assert tables.counter("avatica.missing_statement") == 1


@pytest.mark.parametrize(
    "body",
    [
        '{"user":"request"}',
        '{"requests":1}',
        "[1,2]",
        "",
        "{",
        "\n\x2borg.apache.calcite.avatica.proto.Requests",
        "\n\x05hello",
        '{"request":5}'[:9],
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream", "text/plain"])
def test_other_posts_stay_http(tmp_path: Path, body: str, kind: str) -> None:
    for cuts in (False, True):
        tables = read(tmp_path, talk([(CLIENT, post(body, kind)), (SERVER, answer("{}"))] * 2, cuts=cuts))
        assert (tables.messages["protocol"] == Protocol.HTTP).all()
        assert requests(tables) == ["POST /"] * 2
        assert tables.messages["wire_bytes"][0] == len(post(body, kind))


@pytest.mark.parametrize(
    "body",
    [
        '{"request":' + '{"sql":' * 5000,
        '{"request":"execute","sql":"' + "\\ud800" * 3000,
        '{"request":"prepare","sql":"' + "x" * 200_000 + '"}',
        '{"request":"' + "y" * 300 + '"}',
        b"\n?org.apache.calcite.avatica.proto.Requests$OpenConnectionRequest\x12\xff\xff\xff\xff\x0f",
        b"\n?org.apache.calcite.avatica.proto.Requests$OpenConnectionRequest\x12\x05\n\x7fabc",
        b"\n?org.apache.calcite.avatica.proto.Requests$NoSuchConnectionRequest\x12\x00",
    ],
)
def test_hostile_bodies_are_named_and_shift_nothing(tmp_path: Path, body: bytes | str) -> None:
    said = [
        (CLIENT, post(body)),
        (SERVER, answer("{}")),
        (CLIENT, post(call("commit"))),
        (SERVER, answer("{}")),
    ]
    tables = read(tmp_path, talk(said))
    assert requests(tables)[1] == "commit"
    assert tables.messages["request"].tolist() == [-1, 0, -1, 2]
    assert tables.messages["protocol"].tolist() == [Protocol.AVATICA] * 4


def test_connection_ids_are_evidence_that_looks_like_ids(tmp_path: Path) -> None:
    tables = read(tmp_path, talk([(CLIENT, post(call("commit"))), (SERVER, answer("{}"))]))
    e = tables.evidence
    assert ((e["kind"][e["message"] == 0] & ID_LIKE) != 0).sum() == 1
