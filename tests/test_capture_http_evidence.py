"""HTTP/1.x: route templates, evidence tokens, and their bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capture_packets import (
    CLIENT,
    SERVER,
    Dialogue,
    write_pcap,
)
from http_dialogue import OK, SALT, run, token, tokens

from tapscope import capture
from tapscope.capture import _native
from tapscope.store.codes import ID_LIKE, TokenKind

ROUTES = [
    ("/bb/story/5?page=1&story=3", "GET /bb/story/{n} ?page&story"),
    ("/a/123e4567-e89b-12d3-a456-426614174000", "GET /a/{uuid}"),
    ("/a/0123456789abcdef0123", "GET /a/{hex}"),
    ("/commit/3f2a9bc/C0FFEE42", "GET /commit/{hex}/{hex}"),
    ("/defaced/a1b2c3/abc12345g", "GET /defaced/a1b2c3/abc12345g"),
    ("/a/Zx3K9d0aQpL2mN8vB7cT/x", "GET /a/{id}/x"),
    ("/story-of-the-year-2024-part-2", "GET /story-of-the-year-2024-part-2"),
    ("/news/2026-11-21/x", "GET /news/{date}/x"),
    ("/log/2026_11_21.txt", "GET /log/{date}.txt"),
    ("/log/2026-11-21T03:04:05Z", "GET /log/{date}"),
    ("/img/17.png", "GET /img/{n}.png"),
    ("/s;jsessionid=ABC123?z&a=&a=2&m=%20", "GET /s ?a&m&z"),
    ("http://host:80/abs?x=1", "GET /abs ?x"),
    ("https+unix://bob:hunter2@h/x", "GET /x"),
    ("http://h?next=/secret", "GET /"),
    ("bob:hunter2@h", "GET h"),
    ("bob:hunter2@mail@h?x=1", "GET h ?x"),
    ("/unsub?alice@example.com", "GET /unsub ?{value}"),
    ("/a?wsdl", "GET /a ?wsdl"),
    ("/a?1724313600&b=1&v1.2&alice%20b", "GET /a ?b&{id}&{value}"),
    ("/", "GET /"),
    ("/q?", "GET /q"),
    ("*", "GET *"),
]


@pytest.mark.parametrize(("target", "route"), ROUTES)
def test_route_templates(target: str, route: str, tmp_path: Path) -> None:
    tables = run(tmp_path, [(CLIENT, b"GET %s HTTP/1.1\r\n\r\n" % target.encode()), (SERVER, OK)])
    assert tables.classes == [(1, route)]


def word(number: int) -> str:
    """A word that looks like any other."""
    return "".join(chr(97 + number // 26**place % 26) for place in range(3)) + "man"


@pytest.mark.parametrize("mss", [1448, 5])
def test_words_beyond_two_hundred_at_one_place_are_one_class(mss: int, tmp_path: Path) -> None:
    asked = [f"/user/{word(n)}/mail?x=1" for n in range(250)] + [
        "/user",
        f"/user/{word(7)}/mail?x=1",
        "/about/us",
    ]
    asked += [f"/user/{word(n)}/{other}" for n in (249, 3) for other in ("mail", "news")]
    asked += [f"/pages/{word(n)}.html" for n in range(201)]
    turns = [(CLIENT, b"".join(f"GET {path} HTTP/1.1\r\n\r\n".encode() for path in asked))]
    tables = run(tmp_path, turns, mss)
    found = [tables.classes[class_id][1] for class_id in tables.messages["class_id"].tolist()]
    assert found[:200] == [f"GET /user/{word(n)}/mail ?x" for n in range(200)]
    assert found[200:250] == ["GET /user/{*}/mail ?x"] * 50
    assert found[250:253] == ["GET /user", f"GET /user/{word(7)}/mail ?x", "GET /about/us"]
    assert found[253:255] == ["GET /user/{*}/mail", "GET /user/{*}/news"]
    assert found[255:257] == [f"GET /user/{word(3)}/mail", f"GET /user/{word(3)}/news"]
    assert found[-1] == "GET /pages/{*}.html"


def classes_of(path: Path, asked: list[str]) -> list[str]:
    turns = [(CLIENT, "".join(f"GET {target} HTTP/1.1\r\n\r\n" for target in asked).encode())]
    tables = run(path, turns)
    return [tables.classes[class_id][1] for class_id in tables.messages["class_id"].tolist()]


def test_names_of_parameters_beyond_two_hundred_at_one_place_are_one_class(tmp_path: Path) -> None:
    asked = [f"/find?{word(n)}=1&page=2" for n in range(250)]
    asked += [f"/find?{word(n)}" for n in (7, 249)] + ["/find?page=3", f"/other?{word(249)}=1"]
    found = classes_of(tmp_path, asked)
    assert found[:3] == [f"GET /find ?{word(n)}&page" for n in range(3)]
    assert found[199:250] == ["GET /find ?page&{*}"] * 51  # `page` is one of the two hundred
    assert found[250:] == [
        f"GET /find ?{word(7)}",
        "GET /find ?{*}",
        "GET /find ?page",
        f"GET /other ?{word(249)}",
    ]


def test_selections_of_few_names_are_bounded(tmp_path: Path) -> None:
    chosen = [[word(at) for at in range(12) if number >> at & 1] for number in range(1, 1 << 12)]
    found = classes_of(tmp_path, ["/find?" + "&".join(f"{name}=1" for name in names) for names in chosen])
    assert found[2] == f"GET /find ?{word(0)}&{word(1)}"
    assert found[-1] == "GET /find ?{*}"
    assert len(set(found)) == 200 + 12 + 1


def tokens_of_words(tables: capture.CaptureTables, row: int) -> set[tuple[int, int, int]]:
    return {each for each in tokens(tables, row) if each[1] == TokenKind.WORD}


@pytest.mark.parametrize(
    ("target", "place", "decoded"),
    [
        ("/tag/{word}/?page=2", "GET /tag/{*}/ ?page", "{word}"),
        ("/wiki/{word}%C3%A7.html", "GET /wiki/{*}.html", "{word}ç"),
        ("/a;v=1/17//{word};x", "GET /a/{n}//{*}", "{word}"),
    ],
)
def test_the_third_word_at_a_place_makes_tokens_of_all_that_follow(
    target: str, place: str, decoded: str, tmp_path: Path
) -> None:
    """The class of the last request is the first one's."""
    asked = [target.format(word=word(n)) for n in (0, 0, 1, 2, 3, 0)]
    request = "".join(f"GET {path} HTTP/1.1\r\n\r\n" for path in asked)
    tables = run(tmp_path, [(CLIENT, request.encode())])
    assert [tokens_of_words(tables, row) for row in range(3)] == [set()] * 3
    for row, n in ((3, 2), (4, 3), (5, 0)):
        assert tokens_of_words(tables, row) == {token(TokenKind.WORD, decoded.format(word=word(n)), place)}


@pytest.mark.parametrize("target", ["/{n}", "/2026-11-{n:02}", "/x?{n}", "*", "/{{a{n}}}"])
def test_what_is_no_word_is_no_token_of_one(target: str, tmp_path: Path) -> None:
    request = "".join(f"GET {target.format(n=n)} HTTP/1.1\r\n\r\n" for n in range(1, 9))
    tables = run(tmp_path, [(CLIENT, request.encode())])
    assert not np.isin(tables.evidence["kind"], TokenKind.WORD).any()


def test_a_word_is_the_same_token_where_there_are_too_many(tmp_path: Path) -> None:
    asked = [f"/user/{word(n)}%21/mail" for n in range(250)]
    request = "".join(f"GET {path} HTTP/1.1\r\n\r\n" for path in asked)
    tables = run(tmp_path, [(CLIENT, request.encode())])
    assert len(tables.classes) == 201
    for n in range(2, 250):
        assert tokens_of_words(tables, n) == {token(TokenKind.WORD, word(n) + "!", "GET /user/{*}/mail")}


def test_of_a_path_the_first_eight_words_are_looked_at(tmp_path: Path) -> None:
    long = "/".join(word(n) for n in range(7))
    asked = [f"/{long}/{word(n)}" for n in range(5)] + [f"/{long}/same/{word(n)}" for n in range(5)]
    request = "".join(f"GET {path} HTTP/1.1\r\n\r\n" for path in asked)
    tables = run(tmp_path, [(CLIENT, request.encode())])
    assert [len(tokens_of_words(tables, row)) for row in range(10)] == [0, 0, 1, 1, 1] + [0] * 5


@pytest.mark.parametrize("target", ["/find?user{n}@x", "/find?u{n}x=1", "/{{u{n}}}/x", "/img/1.{n}x"])
def test_no_place_of_a_target_fills_the_dictionary(target: str, tmp_path: Path) -> None:
    assert len(set(classes_of(tmp_path, [target.format(n=n) for n in range(1000)]))) <= 201


def test_a_part_of_a_query_without_a_name_is_evidence(tmp_path: Path) -> None:
    tables = run(
        tmp_path, [(CLIENT, b"GET /unsub?alice%40example.com&17&x=1 HTTP/1.1\r\n\r\n"), (SERVER, OK)]
    )
    nameless = _native.slot_of_name("")
    assert tokens(tables) == {
        token(TokenKind.URI, "/unsub?alice%40example.com&17&x=1"),
        token(TokenKind.TEXT, "alice@example.com", slot=nameless),
        token(TokenKind.NUMBER, "17", slot=nameless),
        token(TokenKind.NUMBER, "1", "x"),
        token(TokenKind.ENDPOINT, "10.0.0.1:40000"),
    }


def test_words_of_routes_are_bounded(tmp_path: Path) -> None:
    paths = [f"/{word(n % 199)}/{word(n // 199)}/{word(n % 7)}" for n in range(39_000)]
    request = "".join(f"GET {path} HTTP/1.1\r\n\r\n" for path in paths).encode()
    tables = run(tmp_path, [(CLIENT, request)])
    assert len(tables.messages["conn"]) == len(paths)
    assert 10_000 < len(tables.classes) < 40_000
    assert any("{*}" in text for _, text in tables.classes)
    assert tables.counter("classes.beyond_bound") == 0


def test_evidence_of_a_request(tmp_path: Path) -> None:
    form = b"comment=a+b%21&story=17&empty="
    head = b"POST /s/42/0123456789abcdef?page=2&q=%C3%A9 HTTP/1.1\r\nHost: a\r\n"
    head += b"Cookie: sid=k1; n=7\r\nX-User: bob\r\n"
    head += b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(form)
    tables = run(tmp_path, [(CLIENT, head + form), (SERVER, OK)])
    segment = 0x80000000
    assert tokens(tables) == {
        token(TokenKind.URI | ID_LIKE, "/s/42/0123456789abcdef?page=2&q=%C3%A9"),
        token(TokenKind.URI, "/s/42/{id}?page=2&q=%C3%A9"),
        token(TokenKind.NUMBER, "42", slot=segment + 1),
        token(TokenKind.TEXT | ID_LIKE, "0123456789abcdef", slot=segment + 2),
        token(TokenKind.NUMBER, "2", "page"),
        token(TokenKind.TEXT, "é", "q"),
        token(TokenKind.TEXT, "k1", "sid"),
        token(TokenKind.NUMBER, "7", "n"),
        token(TokenKind.TEXT, "bob", "x-user"),
        token(TokenKind.TEXT, "a b!", "comment"),
        token(TokenKind.NUMBER, "17", "story"),
        token(TokenKind.ENDPOINT, "10.0.0.1:40000"),
    }


def test_of_a_traceparent_the_trace_is_evidence(tmp_path: Path) -> None:
    """The span changes at every hop."""
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    heads = [f"GET / HTTP/1.1\r\nTraceparent: {value}\r\n\r\n" for value in (f"00-{trace}-{span}-01", "none")]
    turns = [turn for head in heads for turn in ((CLIENT, head.encode()), (SERVER, OK))]
    tables = run(tmp_path, turns)
    assert token(TokenKind.TEXT | ID_LIKE, trace, "traceparent") in tokens(tables)
    assert token(TokenKind.TEXT, "none", "traceparent") in tokens(tables, 2)


def test_only_the_first_8_kib_of_a_form_are_looked_at(tmp_path: Path) -> None:
    form = b"a=1&long=" + b"x" * 9000 + b"&b=2"
    head = (
        b"POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
        % len(form)
    )
    tables = run(tmp_path, [(CLIENT, head + form), (SERVER, OK)])
    assert tokens(tables) == {
        token(TokenKind.URI, "/"),
        token(TokenKind.NUMBER, "1", "a"),
        token(TokenKind.ENDPOINT, "10.0.0.1:40000"),
    }
    assert tables.messages["wire_bytes"][0] == len(head + form)


def test_hashes_depend_on_the_salt_alone(tmp_path: Path) -> None:
    path = write_pcap(
        tmp_path / "a.pcap", Dialogue().open().send(CLIENT, b"GET /a?b=c HTTP/1.1\r\n\r\n").packets
    )
    first, again, other = (
        capture.read_files([path], salt=salt).evidence["hash"].tolist() for salt in (SALT, SALT, bytes(16))
    )
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("123e4567-e89b-12d3-a456-426614174000", True),
        ("0123456789abcdef", True),
        ("dGhpcyBpcyBhIHNlY3JldCB0b2tlbg1", True),
        ("A1B2C3D4E5F60718293A4B5C6D7E8F90.worker1", True),
        ("12345678901234567890", True),
        ("1234567890123456789", False),
        ("story-of-the-year-2024-part-2", False),
        ("a quite ordinary sentence with 2 numbers 3", False),
        ("internationalization", False),
        ("short1", False),
        ("", False),
    ],
)
def test_what_looks_like_an_id(value: str, expected: bool) -> None:
    assert _native.looks_like_id(value) is expected
