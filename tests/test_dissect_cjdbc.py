"""C-JDBC 2.0 between driver and controller, spoken from its description by pcaps/cjdbc/cjdbc_dialogue.py."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, message_rows, read_pcap, unaccounted, write_pcap
from cjdbc_messages import CJDBC_PCAPS, speak

from tapscope import capture
from tapscope.capture import _native
from tapscope.store.codes import ID_LIKE, MessageFlag, MessageKind, Protocol, TokenKind

PCAP = CJDBC_PCAPS / "cjdbc_every_command.pcap"
SALT = b"sixteen bytes ok"


def read(path: Path, packets: list[Packet], **options: Any) -> capture.CaptureTables:
    tables = capture.read_files([write_pcap(path / "a.pcap", packets)], salt=SALT, **options)
    assert unaccounted(tables) == []
    return tables


def talk(turns: list[Any], cuts: bool = False, mss: int = 1448) -> list[Packet]:
    """The packets of a connection to the controller; `cuts`: every byte in a segment of its own."""
    dialogue = Dialogue(server_port=25322).open()
    for turn in turns:
        for side, data in ((CLIENT, turn.command), (SERVER, turn.answer)):
            if data:
                dialogue.send(side, data, cuts=range(len(data)) if cuts else (), mss=mss)
    return dialogue.close().packets


def text_of(tables: capture.CaptureTables, row: int) -> str:
    class_id = int(tables.messages["class_id"][row])
    return tables.classes[class_id][1] if class_id >= 0 else ""


def commands(tables: capture.CaptureTables) -> list[tuple[str, int, bool, bool]]:
    """Class, status of the answer, whether that is an error, and whether there is one, in order."""
    m = tables.messages
    answer = {int(m["request"][row]): row for row in np.flatnonzero(m["kind"] == MessageKind.RESPONSE)}
    out = []
    for row in np.flatnonzero(m["direction"] == 0):
        at = answer.get(int(row))
        status = int(m["status"][at]) if at is not None else 0
        error = at is not None and bool(m["flags"][at] & MessageFlag.ERROR)
        out.append((text_of(tables, int(row)), status, error, at is not None))
    return out


def expected(turns: list[Any]) -> list[tuple[str, int, bool, bool]]:
    return [(turn.name, turn.status, turn.error, bool(turn.answer)) for turn in turns]


def tokens(tables: capture.CaptureTables, row: int, kind: TokenKind) -> list[tuple[int, int]]:
    e = tables.evidence
    of = (e["message"] == row) & (e["kind"] & ~np.uint8(ID_LIKE) == kind)
    return list(zip(e["slot"][of].tolist(), e["hash"][of].tolist(), strict=True))


def pairs(tables: capture.CaptureTables) -> set[tuple[int, int]]:
    """First sequence numbers of every answer and of the command that it is said to answer."""
    m = tables.messages
    rows = np.flatnonzero(m["request"] >= 0)
    return {(int(m["tcp_seq"][m["request"][row]]), int(m["tcp_seq"][row])) for row in rows}


def test_every_command_and_every_form_of_answer_is_read_to_its_last_byte() -> None:
    tables = capture.read_files([PCAP], salt=SALT)
    assert unaccounted(tables) == []
    assert commands(tables) == expected([*speak.every_command(), *speak.refused_login()])
    assert (tables.connections["protocol"] == Protocol.CJDBC).all()
    assert (
        tables.connections["unparsed_to_server"].sum() == tables.connections["unparsed_to_client"].sum() == 0
    )
    wrong = MessageFlag.SUSPICIOUS | MessageFlag.INFERRED | MessageFlag.UNFINISHED
    assert not (tables.messages["flags"] & wrong).any()
    one_way = {
        text_of(tables, int(row)) for row in np.flatnonzero(tables.messages["kind"] == MessageKind.ONE_WAY)
    }
    assert one_way == {"Reset", "RestoreConnectionState"}


def test_messages_have_exactly_the_sizes_that_were_sent() -> None:
    m = capture.read_files([PCAP], salt=SALT).messages
    turns = [*speak.every_command(), *speak.refused_login()]
    assert m["wire_bytes"][m["direction"] == 0].tolist() == [len(turn.command) for turn in turns]
    answers = [len(turn.answer) for turn in turns if turn.answer]
    assert m["wire_bytes"][m["direction"] == 1].tolist() == answers


def test_the_capture_is_what_its_generator_makes(tmp_path: Path) -> None:
    turns, refused = list(speak.every_command()), list(speak.refused_login())
    frames = [*speak.packets(turns, 40001), *speak.packets(refused, 40002, speak.START_NS + 10**10)]
    speak.write_pcap(tmp_path / "a.pcap", frames)
    assert (tmp_path / "a.pcap").read_bytes() == PCAP.read_bytes()


def test_bytes_one_by_one_give_the_same_messages(tmp_path: Path) -> None:
    turns = [turn for turn in speak.every_command() if len(turn.command) < 10_000]
    whole = message_rows(read(tmp_path, talk(turns)), times=False)
    assert message_rows(read(tmp_path, talk(turns, cuts=True)), times=False) == whole
    assert len(whole) == sum(1 + bool(turn.answer) for turn in turns)


@pytest.mark.parametrize("mss", [3, 7, 100, 333])
def test_segments_of_any_size_give_the_same_messages(tmp_path: Path, mss: int) -> None:
    turns = list(speak.every_command())
    whole = message_rows(read(tmp_path, talk(turns)), times=False)
    assert message_rows(read(tmp_path, talk(turns, mss=mss)), times=False) == whole


def test_a_value_hashes_alike_in_statement_parameter_and_result(tmp_path: Path) -> None:
    columns = (("id", "T-Integer"), ("title", "T-String"), ("n", "T-Long"))
    inline = "SELECT * FROM story WHERE id = 42 AND title = 'it''s'"
    marked = "SELECT * FROM story WHERE id = <!%I|42|!%> AND title = <!%S|it's|!%>"
    answer = speak.result_set(columns, [(42, "it's", 42)])
    tables = read(tmp_path, talk([speak.Turn(speak.read(sql), answer, "") for sql in (inline, marked)]))
    assert (
        text_of(tables, 0)
        == text_of(tables, 2)
        == "ExecReadRequest SELECT * FROM story WHERE id = ? AND title = ?"
    )
    number, title = tokens(tables, 0, TokenKind.NUMBER), tokens(tables, 0, TokenKind.TEXT)
    assert [slot for slot, _ in number + title] == [0, 1]
    assert tokens(tables, 2, TokenKind.NUMBER) == number
    assert tokens(tables, 2, TokenKind.TEXT) == title
    assert tokens(tables, 0, TokenKind.STATEMENT) == tokens(tables, 2, TokenKind.STATEMENT)
    result = tokens(tables, 1, TokenKind.RESULT)
    assert result == [(0, number[0][1]), (1, title[0][1]), (2, number[0][1])]


def test_the_skeleton_changes_neither_class_nor_evidence(tmp_path: Path) -> None:
    sql = "SELECT * FROM story WHERE id = 42"
    answer = speak.result_set((("id", "T-Integer"),), [(42,)])
    turns = [
        speak.Turn(speak.read(sql, skeleton=s), answer, "")
        for s in (None, "SELECT * FROM story WHERE id = ?")
    ]
    tables = read(tmp_path, talk(turns))
    assert text_of(tables, 0) == text_of(tables, 2)
    for kind in (TokenKind.NUMBER, TokenKind.STATEMENT):
        assert tokens(tables, 0, kind) == tokens(tables, 2, kind) != []


def test_characters_beyond_the_bmp_hash_as_the_database_sees_them(tmp_path: Path) -> None:
    face = "\U0001f600"
    insert = speak.write(f"INSERT INTO t(a) VALUES('{face}')", 2)
    answer = speak.result_set((("a", "T-String"),), [("x",)])
    tables = read(tmp_path, talk([speak.Turn(insert, answer, "")]))
    query = b"\x03INSERT INTO t(a) VALUES('" + face.encode() + b"')"
    dialogue = Dialogue(server_port=3306).open()
    dialogue.send(CLIENT, struct.pack("<I", len(query))[:3] + b"\0" + query)
    dialogue.send(SERVER, b"\x07\0\0\x01\0\x01\0\x02\0\0\0")
    mysql = read(tmp_path, dialogue.packets, port_map={3306: Protocol.MYSQL})
    assert tokens(tables, 0, TokenKind.TEXT) == tokens(mysql, 0, TokenKind.TEXT) != []
    assert tokens(tables, 0, TokenKind.STATEMENT) == tokens(mysql, 0, TokenKind.STATEMENT)


def test_transaction_ids_and_cursor_names_are_evidence_that_looks_like_ids() -> None:
    tables = capture.read_files([PCAP], salt=SALT)
    e = tables.evidence
    like = (e["kind"] & ID_LIKE) != 0
    names = {
        text_of(tables, int(tables.messages["request"][row]))
        for row in e["message"][like]
        if tables.messages["request"][row] >= 0
    }
    assert {"Begin", "Commit", "Rollback", "ExecReadRequest SELECT id, title, body FROM story"} <= names


def test_result_tokens_of_an_answer_are_bounded(tmp_path: Path) -> None:
    columns = tuple((f"c{i}", "T-Integer") for i in range(40))
    rows = [tuple(range(row, row + 40)) for row in range(60)]
    turn = speak.Turn(speak.read("SELECT 1"), speak.result_set(columns, rows), "")
    tables = read(tmp_path, talk([turn]))
    found = tokens(tables, 1, TokenKind.RESULT)
    # Of the first four rows there is room for one, of the next six the first column.
    assert [slot for slot, _ in found] == [*range(16), *6 * [0]]
    assert [value for _, value in found[16:]] == [
        _native.token_hash(SALT, b"%d" % row) for row in range(4, 10)
    ]


def test_stack_traces_and_passwords_are_nowhere_in_the_tables() -> None:
    tables = capture.read_files([PCAP], salt=SALT, keep_text=True)
    kept = repr(tables.classes) + repr(tables.counters)
    for secret in ("LoadBalancer", "Request 17", "secret"):
        assert secret in PCAP.read_bytes().decode("latin-1")
        assert secret not in kept


def test_a_result_of_megabytes_is_passed_over_by_counting(tmp_path: Path) -> None:
    rows = [(bytes(300_000), "y" * 100_000, i) for i in range(12)]
    columns = (("b", "T-Byte[]"), ("t", "T-String"), ("i", "T-Integer"))
    turns = [
        speak.Turn(
            speak.read("SELECT * FROM big"),
            speak.result_set(columns, rows),
            "ExecReadRequest SELECT * FROM big",
        ),
        speak.Turn(speak.write("UPDATE t SET a = '" + "z" * 500_000 + "'"), speak.OK + speak.integer(1), ""),
        speak.Turn(speak.command(20), speak.OK + speak.long(1), "Begin"),
    ]
    tables = read(tmp_path, talk(turns))
    assert [row[0] for row in commands(tables)][::2] == [turns[0].name, "Begin"]
    assert tables.messages["wire_bytes"].tolist() == [
        len(part) for turn in turns for part in (turn.command, turn.answer)
    ]
    assert not (tables.messages["flags"] & MessageFlag.SUSPICIOUS).any()


def test_a_connection_that_was_joined_anywhere_gives_the_messages_that_follow(tmp_path: Path) -> None:
    turns = [turn for turn in speak.every_command() if len(turn.command) < 10_000]
    packets = talk(turns)
    whole = message_rows(read(tmp_path, packets), times=False, flags=False)
    by_seq = {(row[2], row[1]): row for row in whole}
    for start in range(3, len(packets), 2):
        tables = read(tmp_path, packets[start:])
        rows = message_rows(tables, times=False, flags=False)
        m = tables.messages
        wrong = [row for row in rows if (row[2], row[1]) not in by_seq]
        assert len(wrong) <= 1, start  # the end of a message that began before
        assert pairs(tables) <= {(row[-1], row[1]) for row in whole if row[-1] >= 0}
        sent = {row[1] for row in whole if row[2] == 0}
        first = min((int(seq) for seq in m["tcp_seq"][m["direction"] == 0]), default=None)
        if first is None:
            continue
        found = {int(seq) for seq in m["tcp_seq"][m["direction"] == 0]}
        assert {seq for seq in sent if seq >= first} <= found, start


def test_the_loss_of_any_packet_pairs_no_answer_with_another_command(tmp_path: Path) -> None:
    turns = [turn for turn in speak.every_command() if len(turn.command) < 10_000]
    packets = talk(turns)
    whole = read(tmp_path, packets)
    right, count = pairs(whole), len(whole.messages["conn"])
    for lost in range(3, len(packets) - 3):
        tables = read(tmp_path, packets[:lost] + packets[lost + 1 :])
        assert pairs(tables) <= right, lost
        assert len(tables.messages["conn"]) >= count - 2, lost
        seen = {
            (int(d), int(s))
            for d, s in zip(tables.messages["direction"], tables.messages["tcp_seq"], strict=True)
        }
        true = {
            (int(d), int(s))
            for d, s in zip(whole.messages["direction"], whole.messages["tcp_seq"], strict=True)
        }
        assert seen <= true, lost


def test_a_capture_that_ends_anywhere_gives_the_messages_until_then(tmp_path: Path) -> None:
    packets = read_pcap(PCAP)
    whole = commands(capture.read_files([PCAP], salt=SALT))
    for end in range(3, len(packets), 3):
        found = commands(read(tmp_path, packets[:end]))
        full = found[:-1]
        assert [row[0] for row in full] == [row[0] for row in whole[: len(full)]]


def test_rows_of_a_cursor_that_was_opened_before_are_delimited_by_turns(tmp_path: Path) -> None:
    fetch = speak.command(32, speak.text("9"), speak.integer(10))
    rows = speak.OK + speak.rows_of(["T-Integer"], [(1,), (2,)], True)
    begin = speak.Turn(speak.command(20), speak.OK + speak.long(7), "Begin")
    turns = [speak.Turn(speak.read("SELECT 1"), speak.NULL_RESULT, ""), speak.Turn(fetch, rows, ""), begin]
    tables = read(tmp_path, talk(turns))
    assert [row[0] for row in commands(tables)] == [
        "ExecReadRequest SELECT ?",
        "FetchNextResultSetRows",
        "Begin",
    ]
    assert tables.messages["flags"][3] == MessageFlag.INFERRED
    assert tables.messages["wire_bytes"][3] == len(rows)
    assert tables.counter("cjdbc.cursor_not_seen") == 1


@pytest.mark.parametrize(
    "answer",
    [
        speak.text("T-ResultSet") + speak.integer(2**31 - 1),
        speak.text("T-ResultSet") + speak.integer(-1),
        speak.text("T-ResultSet") + speak.integer(1) + b"\7",
        speak.text("T-Exception") + speak.text("T-Nothing"),
        speak.text("T-Exception") + speak.text("T-CoreException") + b"\1\x7f\xff\xff\xff",
        speak.text("T-Nothing"),
        speak.text("T-ResultSet") + speak.integer(0) + speak.text("T-Column types") + speak.integer(-5),
        b"\1\0\0\0\2\0\xffOK",
    ],
)
def test_impossible_answers_are_named_and_end_where_the_client_goes_on(tmp_path: Path, answer: bytes) -> None:
    begin = speak.Turn(speak.command(20), speak.OK + speak.long(7), "Begin")
    turns = [speak.Turn(speak.read("SELECT 1"), answer + bytes(3000), "ExecReadRequest SELECT ?"), begin]
    tables = read(tmp_path, talk(turns))
    assert [row[0] for row in commands(tables)] == ["ExecReadRequest SELECT ?", "Begin"]
    assert tables.counter("cjdbc.unreadable_answer") == 1
    assert tables.messages["flags"][1] & MessageFlag.SUSPICIOUS
    assert tables.messages["wire_bytes"][1] == len(turns[0].answer)
    assert tables.messages["request"][3] == 2


def test_other_versions_and_pings_are_read_where_the_port_is_named(tmp_path: Path) -> None:
    ping = Dialogue(server_port=25322, client_port=5001).open().send(CLIENT, b"\xff" * 4).close(SERVER)
    old = (
        Dialogue(server_port=25322, client_port=5002)
        .open()
        .send(CLIENT, speak.login(version=19))
        .close(SERVER)
    )
    tables = read(tmp_path, [*ping.packets, *old.packets], port_map={25322: Protocol.CJDBC})
    assert [row[0] for row in commands(tables)] == ["Ping", "LOGIN"]
    assert tables.counter("cjdbc.other_version") == 1


def test_object_streams_of_version_1_are_framed_by_turns(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=25322).open()
    magic = b"\xac\xed\0\5"
    for data in (magic + b"sr", b"xx", b"yyy"):
        dialogue.send(CLIENT, data).send(SERVER, data * 2)
    tables = read(tmp_path, dialogue.close().packets, port_map={25322: Protocol.CJDBC})
    assert [row[0] for row in commands(tables)] == ["(object stream)"] * 3
    assert (tables.messages["flags"] == MessageFlag.OPAQUE | MessageFlag.INFERRED).all()
    assert tables.counter("cjdbc.object_stream") == 1


def test_sequoia_is_framed_by_its_markers_and_flagged_inferred(tmp_path: Path) -> None:
    turns = list(speak.sequoia())
    tables = capture.read_files([CJDBC_PCAPS / "sequoia.pcap"], salt=SALT)
    assert unaccounted(tables) == []
    assert [row[0] for row in commands(tables)] == [turn.name for turn in turns]
    assert (tables.messages["flags"] == MessageFlag.INFERRED).all()
    assert tables.counter("cjdbc.sequoia") == 1
    assert [hash_ for _, hash_ in tokens(tables, 4, TokenKind.NUMBER)] == [
        hash_ for _, hash_ in tokens(tables, 6, TokenKind.NUMBER)
    ]
    joined = read(tmp_path, read_pcap(CJDBC_PCAPS / "sequoia.pcap")[9:])
    assert [row[0] for row in commands(joined)] == [turn.name for turn in turns[2:]]


def test_answers_that_nobody_asked_for_end_somewhere(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=25322).open()
    dialogue.send(CLIENT, speak.command(20)).send(SERVER, speak.OK + speak.long(7))
    for data in (
        b"\x1f\xa1\x50\x1f",
        speak.OK,
        speak.OK + b"\2",
        speak.text("T-ResultSet") + b"\xff" * 9,
        b"\1",
    ):
        dialogue.send(SERVER, data)
    dialogue.send(CLIENT, speak.command(21)).send(SERVER, speak.OK + speak.long(8))
    tables = read(tmp_path, dialogue.close().packets)
    assert [row[0] for row in commands(tables)] == ["Begin", "Commit"]
    m = tables.messages
    answers = np.flatnonzero(m["kind"] == MessageKind.RESPONSE)
    assert m["request"][answers].tolist()[0] == 0
    assert text_of(tables, int(m["request"][answers[-1]])) == "Commit"
    assert (m["request"][answers[1:-1]] == -1).all()
