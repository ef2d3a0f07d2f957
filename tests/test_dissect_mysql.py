"""MySQL and MariaDB as real clients speak them: counts, classes and evidence of recorded connections."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from tapscope import capture
from tapscope.store.codes import MessageFlag, Protocol, TokenKind

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
SALT = b"sixteen bytes ok"
MYSQL, REQUEST, RESPONSE, ONE_WAY, ERROR = 3, 0, 1, 3, 16

# file: commands (as tshark counts them, the login excepted), those that are answered, answers that are errors
COUNTS = {
    "mysql_big_packet.pcap.gz": (6, 5, 0),
    "mysql_bulk_mariadb_j.pcap": (8, 7, 0),
    "mysql_compressed_cli.pcap": (4, 3, 0),
    "mysql_compressed_connector_j.pcap": (21, 15, 2),
    "mysql_compressed_connector_python.pcap": (13, 12, 0),
    "mysql_compressed_mariadb_j.pcap": (13, 12, 0),
    "mysql_cursor_connector_j.pcap": (12, 10, 0),
    "mysql_local_infile.pcap": (3, 2, 0),
    "mysql_pipelined_mariadb_j.pcap": (24, 23, 0),
    "mysql_prepared_connector_j.pcap": (21, 15, 2),
    "mysql_prepared_mariadb_j.pcap": (10, 9, 2),
    "mysql_rewritten_connector_j.pcap": (18, 14, 1),
    "mysql_several_statements.pcap": (5, 4, 1),
    "mediawiki_http_mysql.pcap": (101, 97, 0),
}


def read(path: Path) -> capture.CaptureTables:
    return capture.read_files([path], salt=SALT)


def classes(tables: capture.CaptureTables, kinds: tuple[int, ...] = (REQUEST, ONE_WAY)) -> list[str]:
    """Class texts of the client's messages on MySQL connections, in order."""
    m = tables.messages
    rows = (m["protocol"] == MYSQL) & (m["direction"] == 0) & np.isin(m["kind"], kinds)
    return [tables.classes[i][1] for i in m["class_id"][rows]]


def tokens(tables: capture.CaptureTables, direction: int) -> list[tuple[int, int, int]]:
    """Slot, kind and hash of all tokens of one direction, in order."""
    e = tables.evidence
    rows = tables.messages["direction"][e["message"]] == direction
    return list(
        zip(e["slot"][rows].tolist(), e["kind"][rows].tolist(), e["hash"][rows].tolist(), strict=True)
    )


@pytest.mark.parametrize("name", COUNTS)
def test_every_command_is_found_and_answered_and_no_byte_is_left(name: str) -> None:
    tables = read(PCAPS / name)
    m, c = tables.messages, tables.connections
    mysql = c["protocol"] == MYSQL
    assert c["unparsed_to_server"][mysql].sum() == 0
    assert c["unparsed_to_client"][mysql].sum() == 0
    commands = [text for text in classes(tables) if text != "LOGIN"]
    rows = m["protocol"] == MYSQL
    answers = rows & (m["kind"] == RESPONSE)
    assert (m["request"][answers] >= 0).all()
    answered = m["request"][answers]
    assert len(set(answered.tolist())) == len(answered)
    logins = classes(tables).count("LOGIN")
    errors = int((m["flags"][rows] & ERROR > 0).sum())
    assert (len(commands), len(answered) - logins, errors) == COUNTS[name]


def test_a_request_ends_before_its_answer_and_answers_come_in_order() -> None:
    for name in COUNTS:
        m = read(PCAPS / name).messages
        answers = np.flatnonzero((m["protocol"] == MYSQL) & (m["kind"] == RESPONSE))
        requests = m["request"][answers]
        assert (m["begin_ns"][answers] >= m["begin_ns"][requests]).all()
        assert (m["end_ns"][answers] >= m["begin_ns"][answers]).all()
        for conn in np.unique(m["conn"][answers]):
            assert (np.diff(requests[m["conn"][answers] == conn]) > 0).all()


def test_compression_changes_neither_classes_nor_evidence() -> None:
    plain = read(PCAPS / "mysql_prepared_connector_j.pcap")
    compressed = read(PCAPS / "mysql_compressed_connector_j.pcap")
    assert classes(compressed) == classes(plain)
    assert tokens(compressed, 0) == tokens(plain, 0)
    # Some of the answers hold the time of day and the connection's number.
    assert len(tokens(compressed, 1)) == len(tokens(plain, 1))


SETS_UP = ("LOGIN", "SSL_REQUEST", "GSSENC_REQUEST", "PING", "SELECT ?", "EXECUTE SELECT ?")


@pytest.mark.parametrize("name", [*COUNTS, "postgres"])
def test_commands_that_set_up_the_next_one_have_a_flag(name: str) -> None:
    paths = [PCAPS / name] if name in COUNTS else sorted((PCAPS / name).glob("*.pcap*"))
    found = 0
    for path in paths:
        tables = read(path)
        m = tables.messages
        for row in np.flatnonzero(m["kind"] == REQUEST).tolist():
            text = tables.classes[m["class_id"][row]][1] if m["class_id"][row] >= 0 else ""
            sets_up = text.startswith("PREPARE ") or text in SETS_UP
            assert bool(m["flags"][row] & MessageFlag.SETUP) == sets_up or text == "EXECUTE SELECT ?", text
            found += sets_up
    assert found > 0


def test_executions_of_a_prepared_statement_carry_its_text_and_their_values() -> None:
    tables = read(PCAPS / "mysql_prepared_connector_j.pcap")
    text = "SELECT title, written FROM story WHERE id = ? AND score < ? AND written > ?"
    found = classes(tables)
    assert found.count("PREPARE " + text) == 5
    assert found.count("EXECUTE " + text) == 5
    m, e = tables.messages, tables.evidence
    runs = [i for i in range(len(m["conn"])) if tables.classes[m["class_id"][i]][1] == "EXECUTE " + text]
    values = [e["hash"][(e["message"] == i) & (e["slot"] < 3)].tolist() for i in runs]
    assert [len(v) for v in values] == [3] * 5
    assert len({v[0] for v in values}) == 5  # id 1..5
    assert len({v[2] for v in values}) == 1  # one time stamp


@pytest.mark.parametrize("name", ["testbed_light", "testbed_shop"])
def test_what_like_looks_for_hashes_as_what_a_request_asks_for(name: str) -> None:
    """`LIKE '%rain%'` of a statement, in its text or bound, and `?q=rain` are one value."""
    tables = read(PCAPS / name / "capture" / "tap.pcap.zst")
    e = tables.evidence
    class_of = tables.messages["class_id"][e["message"]]
    # Of a tag, the board takes the first two letters only.
    like = [i for i, (_, text) in enumerate(tables.classes) if "LIKE ?" in text and "FROM tags" not in text]
    asked = e["hash"][
        np.isin(class_of, [i for i, (protocol, _) in enumerate(tables.classes) if protocol == Protocol.HTTP])
    ]
    sought = e["hash"][np.isin(class_of, like) & (e["kind"] == TokenKind.TEXT) & (e["slot"] == 0)]
    assert len(sought) >= 30
    assert np.isin(sought, asked).all()


def test_pipelined_executions_are_answered_one_by_one() -> None:
    tables = read(PCAPS / "mysql_pipelined_mariadb_j.pcap")
    found = classes(tables)
    assert found.count("EXECUTE INSERT INTO note (text) VALUES (?)") == 12
    assert found.count("EXECUTE UPDATE story SET score = ? WHERE id = ?") == 6


def test_a_bulk_execution_gives_every_row_s_value() -> None:
    tables = read(PCAPS / "mysql_bulk_mariadb_j.pcap")
    m, e = tables.messages, tables.evidence
    bulk = [
        i for i in range(len(m["conn"])) if tables.classes[m["class_id"][i]][1].startswith("EXECUTE INSERT")
    ]
    assert len(bulk) == 1
    assert len(np.unique(e["hash"][e["message"] == bulk[0]])) == 12


def test_fetches_of_a_cursor_are_calls_of_their_own() -> None:
    found = classes(read(PCAPS / "mysql_cursor_connector_j.pcap"))
    assert found.count("EXECUTE SELECT id, title, score FROM story WHERE id <= ? ORDER BY id") == 2
    assert found.count("STMT_FETCH") == 4


def thinned(source: Path, target: Path, rate: float, seed: int) -> set[int]:
    """Copies a capture without a share of its packets with payload; returns the numbers of those left out."""
    data = source.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    chance = random.Random(seed)
    out, at, number, lost = [data[:24]], 24, 0, set()
    while at + 16 <= len(data):
        size = struct.unpack_from(order + "I", data, at + 8)[0]
        if size > 70 and chance.random() < rate:
            lost.add(number)
        else:
            out.append(data[at : at + 16 + size])
        at += 16 + size
        number += 1
    target.write_bytes(b"".join(out))
    return lost


@pytest.mark.parametrize("name", ["mediawiki_http_mysql.pcap", "mysql_prepared_connector_j.pcap"])
def test_lost_packets_leave_gaps_but_no_wrong_pairs(name: str, tmp_path: Path) -> None:
    def pairs(tables: capture.CaptureTables) -> dict[tuple[int, int], tuple[int, int]]:
        m, c = tables.messages, tables.connections
        found = {}
        for i in np.flatnonzero((m["protocol"] == MYSQL) & (m["kind"] == RESPONSE) & (m["request"] >= 0)):
            port = int(c["client_port"][m["conn"][i]])
            found[port, int(m["tcp_seq"][i])] = (port, int(m["tcp_seq"][m["request"][i]]))
        return found

    truth = pairs(read(PCAPS / name))
    kept = expected = 0
    for seed in range(20):
        target = tmp_path / f"{seed}.pcap"
        if not thinned(PCAPS / name, target, 0.03, seed):
            continue
        found = pairs(read(target))
        wrong = {k: v for k, v in found.items() if k in truth and truth[k] != v}
        assert not wrong, f"seed {seed}"
        kept += len([k for k in found if k in truth])
        expected += len(truth)
    # A call is whole when neither its request nor its answer's first packet was lost.
    assert kept > 0.88 * expected
