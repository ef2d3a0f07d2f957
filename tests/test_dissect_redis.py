"""Redis as redis-cli, redis-benchmark and plain sockets speak it, and commands made up for the borders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import dissect_checks
import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, unaccounted, write_pcap
from dissect_checks import (
    ERROR,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    calls_of,
    check_late_start,
    check_loss,
    check_segmentation,
    read,
    replies,
    talk_without,
)

from tapscope.store.codes import MessageFlag, Protocol

PCAPS = Path(__file__).resolve().parent.parent / "pcaps/redis"
NAMES = sorted(path.name for path in PCAPS.glob("*.pcap*"))

# file: requests, one-way messages, errors
COUNTS = {
    "benchmark.pcap": (244, 0, 0),
    "blocking.pcap": (3, 0, 0),
    "cli.pcap.gz": (21, 0, 2),
    "cli_resp3.pcap.gz": (22, 0, 2),
    "pipeline.pcap.gz": (69, 2, 0),
    "pubsub.pcap": (7, 5, 0),
    "resp3.pcap": (14, 2, 1),
    "streams.pcap": (6, 0, 0),
}


def command(*words: str) -> bytes:
    return "".join([f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]).encode()


talk = partial(dissect_checks.talk, port=6379)


calls = partial(calls_of, protocol=Protocol.REDIS)


def confirmation(word: str, channels: int) -> bytes:
    return f"*3\r\n${len(word)}\r\n{word}\r\n$1\r\na\r\n:{channels}\r\n".encode()


def test_replies_that_begin_like_messages_are_replies(tmp_path: Path) -> None:
    listens = [(CLIENT, command("SUBSCRIBE", "a")), (SERVER, confirmation("subscribe", 1))]
    message = (SERVER, command("message", "a", "text"))
    asks = [(CLIENT, command("GET", "x")), (SERVER, b"$1\r\n1\r\n")]
    ends = [(CLIENT, command("UNSUBSCRIBE", "a")), (SERVER, confirmation("unsubscribe", 0))]
    resets = [(CLIENT, command("RESET")), (SERVER, b"+RESET\r\n")]
    for over, words in (
        (ends, ["message", "hi", "by", "me"]),
        (ends, ["message", "a", "b"]),
        (resets, ["message", "hi"]),
        (resets, ["pmessage", "a", "b", "c"]),
    ):
        listed = [(CLIENT, command("LRANGE", "note:1", "0", "9")), (SERVER, command(*words))]
        tables = talk(tmp_path, *listens, message, *over, *listed, *asks)
        assert [status for _, status in calls(tables)] == [0, 0, 0, 0]
        assert (tables.messages["kind"] == ONE_WAY).sum() == 1
        response = tables.messages["kind"] == RESPONSE
        assert (
            tables.messages["request"][response].tolist()
            == np.flatnonzero(tables.messages["kind"] == REQUEST).tolist()
        )


def test_every_capture_is_counted() -> None:
    assert sorted(COUNTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_found_and_answered(name: str) -> None:
    tables = read(PCAPS / name)
    m = tables.messages
    requests = np.flatnonzero(m["kind"] == REQUEST)
    assert sorted(m["request"][m["kind"] == RESPONSE].tolist()) == requests.tolist()
    found = (len(requests), int((m["kind"] == ONE_WAY).sum()), int((m["flags"] & ERROR > 0).sum()))
    assert found == COUNTS[name]
    assert unaccounted(tables) == []
    if name not in ("streams.pcap", "pipeline.pcap.gz"):
        assert tables.connections["unparsed_to_server"].sum() == 0
        assert tables.connections["unparsed_to_client"].sum() == 0


@pytest.mark.parametrize("name", NAMES)
def test_segmentation_does_not_matter(name: str, tmp_path: Path) -> None:
    small = name in ("blocking.pcap", "pubsub.pcap", "resp3.pcap", "streams.pcap", "benchmark.pcap")
    check_segmentation(PCAPS / name, tmp_path, (1, 2, 7) if small else (11, 300))


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("benchmark.pcap", "pipeline.pcap.gz")]
)
def test_joined_late_no_answer_goes_to_another_s_request(name: str, tmp_path: Path) -> None:
    check_late_start(PCAPS / name, tmp_path)


# A lost packet of a pipeline takes the pairing of all that is under way: only their order tells them apart.
@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("cli.pcap.gz", 0.9),
        ("pipeline.pcap.gz", 0.85),
        ("resp3.pcap", 0.85),
        ("pubsub.pcap", 0.8),
        ("blocking.pcap", 0.5),
    ],
)
def test_a_lost_packet_leaves_a_gap_but_no_wrong_pair(name: str, share: float, tmp_path: Path) -> None:
    check_loss(PCAPS / name, tmp_path, share)


def calls_without(tmp_path: Path, lost: set[int], *turns: tuple[int, bytes]) -> list[tuple[str, int | None]]:
    """The calls of a connection that says `turns`, those numbered `lost` unseen by the tap."""
    return calls(talk_without(tmp_path, 6379, lost, *turns))


def test_two_lost_replies_in_a_row_do_not_shift_those_behind_them(tmp_path: Path) -> None:
    """The tap learns of both losses at once, before it reads the command between them."""
    turns = [(CLIENT, command("GET", "a")), (SERVER, b"$1\r\n1\r\n")]
    turns += [(CLIENT, command("SET", "a", "2")), (SERVER, b"+OK\r\n")]
    turns += [(CLIENT, command("INCR", "a")), (SERVER, b":3\r\n"), (CLIENT, command("LLEN", "b"))]
    turns += [(SERVER, b"-WRONGTYPE\r\n"), (CLIENT, command("PING")), (SERVER, b"+PONG\r\n")]
    found = [("GET", 0), ("SET", None), ("INCR", None), ("LLEN", 1), ("PING", 0)]
    assert calls_without(tmp_path, {3, 5}, *turns) == found


def test_a_capture_of_the_server_s_direction_alone_has_its_replies(tmp_path: Path) -> None:
    turns = [
        (CLIENT, command("GET", "a")),
        (SERVER, b"$5\r\nhello\r\n"),
        (CLIENT, command("LRANGE", "a", "0", "1")),
    ]
    turns += [(SERVER, b"*2\r\n$1\r\na\r\n:1\r\n"), (CLIENT, command("INCR", "a")), (SERVER, b"-ERR\r\n")]
    dialogue = Dialogue(server_port=6379).open()
    for side, data in turns:
        dialogue.send(side, data)
    packets = [packet for packet in dialogue.close().packets if packet[1][34:36] == (6379).to_bytes(2, "big")]
    tables = read(write_pcap(tmp_path / "one_way.pcap", packets))
    assert unaccounted(tables) == []
    assert tables.messages["wire_bytes"].tolist() == [11, 15, 6]
    assert tables.messages["status"].tolist() == [0, 0, 1]
    assert tables.messages["request"].tolist() == [-1, -1, -1]


def test_replies_to_commands_that_were_lost_are_nobody_s(tmp_path: Path) -> None:
    turns = [(CLIENT, command("GET", "a")), (SERVER, b"$1\r\n1\r\n")]
    turns += [(CLIENT, command("SET", "a", "2")), (SERVER, b"+OK\r\n")]
    turns += [(CLIENT, command("INCR", "a")), (CLIENT, command("LLEN", "b"))]
    turns += [
        (SERVER, b":3\r\n"),
        (SERVER, b"-WRONGTYPE\r\n"),
        (CLIENT, command("PING")),
        (SERVER, b"+PONG\r\n"),
    ]
    found = [("GET", 0), ("LLEN", None), ("PING", 0)]
    assert calls_without(tmp_path, {2, 4}, *turns) == found


def test_when_a_lost_command_was_answered_is_seen(tmp_path: Path) -> None:
    """Nothing else was open: three replies are those of a pipeline of three, two of them in two packets."""
    turns = [(CLIENT, command("GET", "a")), (SERVER, b"$1\r\n1\r\n")]
    turns += [(CLIENT, command("SET", "a", "2") + command("GET", "a") + command("INCR", "a"))]
    turns += [(SERVER, b"+OK\r\n$1\r\n"), (SERVER, b"2\r\n:3\r\n")]
    turns += [(CLIENT, command("PING")), (SERVER, b"+PONG\r\n")]
    assert replies(talk_without(tmp_path, 6379, {2}, *turns)) == [
        (7, True),
        (5, False),
        (7, False),
        (4, False),
        (7, True),
    ]
    # Where the client does not wait for the end of the second, whose the others are is not told.
    turns[4:4] = [(CLIENT, command("LLEN", "b"))]
    assert replies(talk_without(tmp_path, 6379, {2}, *turns))[:3] == [(7, True), (5, False), (4, False)]


def test_replies_that_were_switched_off_unseen_are_not_waited_for(tmp_path: Path) -> None:
    turns = [
        (CLIENT, command("GET", "a")),
        (SERVER, b"$1\r\n1\r\n"),
        (CLIENT, command("CLIENT", "REPLY", "OFF")),
    ]
    turns += [
        (CLIENT, command("SET", "a", "2")),
        (CLIENT, command("CLIENT", "REPLY", "ON")),
        (SERVER, b"+OK\r\n"),
    ]
    turns += [(CLIENT, command("INCR", "a")), (SERVER, b"-ERR\r\n")]
    found = [("GET", 0), ("SET", None), ("CLIENT REPLY", None), ("INCR", 1)]
    assert calls_without(tmp_path, {2}, *turns) == found


def test_classes_hold_the_name_space_of_a_key_and_no_value() -> None:
    found = [text for text, _ in calls(read(PCAPS / "cli.pcap.gz"))]
    assert found[1:9] == [
        "SET user:*",
        "GET user:*",
        "GET user:*",
        "HSET session:*",
        "HGETALL session:*",
        "INCR",
        "LPUSH queue:*",
        "LRANGE queue:*",
    ]
    assert "CONFIG GET" in found
    assert "CLIENT SETNAME" in found
    assert "ZREVRANGEBYSCORE" in found


def test_commands_that_set_up_the_next_one_have_a_flag(tmp_path: Path) -> None:
    sets_up = [
        command("HELLO", "3"),
        command("AUTH", "somebody"),
        command("CLIENT", "SETNAME", "shop"),
        command("SELECT", "1"),
        b"PING\r\n",
    ]
    others = [command("GET", "product:7"), command("MULTI"), command("INFO")]
    turns = [turn for asked in (*sets_up, *others) for turn in ((CLIENT, asked), (SERVER, b"+OK\r\n"))]
    tables = talk(tmp_path, *turns)
    m = tables.messages
    flags = m["flags"][m["kind"] == REQUEST] & MessageFlag.SETUP > 0
    assert flags.tolist() == [True] * len(sets_up) + [False] * len(others)


def test_keys_and_the_numbers_in_them_are_evidence(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, command("GET", "user:42:name") + command("HGET", "users", "42") + command("AUTH", "secret")),
        (SERVER, b"$3\r\nAda\r\n$3\r\nAda\r\n+OK\r\n"),
    )
    e = tables.evidence
    number = e["hash"][(e["message"] == 0) & (e["kind"] == 2)].tolist()
    assert number == e["hash"][(e["message"] == 1) & (e["kind"] == 2)].tolist()
    assert (e["message"] == 2).sum() == 0
    results = e["hash"][e["kind"] == 5].tolist()
    assert len(results) == 2
    parts = talk(tmp_path, (CLIENT, command("GET", "session:3f9a") + command("GET", "3f9a")))
    e = parts.evidence
    whole, part, alone = e["hash"][e["kind"] & 127 == 3].tolist()
    assert part == alone != whole
    several = talk(tmp_path, (CLIENT, command("MGET", "user:1", "user:42") + command("GET", "user:42")))
    e = several.evidence
    first, second = (e["hash"][(e["message"] == n) & (e["kind"] == 2)].tolist() for n in (0, 1))
    assert len(first) == 2
    assert first[1:] == second
    assert len(set(results)) == 1


def test_replies_of_every_type_end_where_they_should(tmp_path: Path) -> None:
    replies = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-7\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123456789012345678901234567890\r\n",
        b"!3\r\nERR\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*1\r\n:4\r\n",
    ]
    tables = talk(tmp_path, (CLIENT, command("PING") * len(replies)), (SERVER, b"".join(replies)))
    m = tables.messages
    sizes = m["wire_bytes"][m["kind"] == RESPONSE].tolist()
    assert sizes == [len(reply) for reply in replies]
    assert (m["flags"][m["kind"] == RESPONSE] & ERROR > 0).tolist() == [
        reply[:1] in b"-!" for reply in replies
    ]


@pytest.mark.parametrize(
    "bad",
    [
        b"*1\r\n$99999\r\n",
        b"*99999999999\r\n",
        b"*1\r\n$4\r\nG\0T!\r\n",
        b"*2\r\n$3\r\nGET\r\n:1\r\n",
        b"*" + b"1" * 40,
    ],
)
def test_commands_that_cannot_be_are_named(bad: bytes, tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, command("PING")),
        (SERVER, b"+PONG\r\n"),
        (CLIENT, bad),
        (SERVER, b"-ERR Protocol error\r\n"),
        (CLIENT, command("GET", "a")),
        (SERVER, b"$1\r\n1\r\n"),
    )
    assert calls(tables) == [("PING", 0), ("GET", 0)]
    assert sum(value for name, value, _ in tables.counters if name.startswith("redis.bad")) >= 1


@pytest.mark.parametrize("bad", [b"*99999999999\r\n", b"$-7\r\n", b"?\r\n", b"$x\r\n", b"+" + b"x" * 70_000])
def test_replies_that_cannot_be_are_named(bad: bytes, tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, command("GET", "a")),
        (SERVER, bad),
        (CLIENT, command("GET", "b")),
        (SERVER, b"$1\r\n1\r\n"),
    )
    assert calls(tables)[1] == ("GET", 0)
    assert tables.counter("redis.bad_reply") + tables.counter("redis.long_line") == 1
