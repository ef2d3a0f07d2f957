"""AJP13 between a real Apache httpd (mod_jk, mod_proxy_ajp) and Tomcat, next to the HTTP that it carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tapscope import capture

PCAP = Path(__file__).resolve().parent.parent / "pcaps" / "http_ajp_mysql_groundtruth.pcap"
HTTP, AJP, REQUEST, RESPONSE = 1, 2, 0, 1
URI, ENDPOINT = 1, 4


@pytest.fixture(scope="module")
def tables() -> capture.CaptureTables:
    return capture.read_files([PCAP], salt=b"sixteen bytes ok")


def rows(tables: capture.CaptureTables, protocol: int, kind: int) -> np.ndarray:
    m = tables.messages
    return np.flatnonzero((m["protocol"] == protocol) & (m["kind"] == kind))


def test_every_forward_request_is_found_and_answered(tables: capture.CaptureTables) -> None:
    m, c = tables.messages, tables.connections
    requests, responses = rows(tables, AJP, REQUEST), rows(tables, AJP, RESPONSE)
    assert len(requests) == 20
    assert m["request"][responses].tolist() == sorted(
        requests.tolist(), key=lambda i: m["request"][responses].tolist().index(i)
    )
    assert (m["status"][responses] == 200).all()
    ajp = c["protocol"] == AJP
    assert c["unparsed_to_server"][ajp].sum() == c["unparsed_to_client"][ajp].sum() == 0


def test_the_class_of_a_request_is_the_same_text_in_http_and_ajp(tables: capture.CaptureTables) -> None:
    def texts(protocol: int) -> list[str]:
        return sorted(
            tables.classes[i][1] for i in tables.messages["class_id"][rows(tables, protocol, REQUEST)]
        )

    assert texts(AJP) == texts(HTTP)


@pytest.mark.parametrize("kind", [URI, ENDPOINT])
def test_the_token_of_a_request_is_the_same_in_http_and_ajp(tables: capture.CaptureTables, kind: int) -> None:
    def hashes(protocol: int) -> list[int]:
        e = tables.evidence
        of = np.isin(e["message"], rows(tables, protocol, REQUEST)) & (e["kind"] & 0x7F == kind)
        return sorted(e["hash"][of].tolist())

    assert len(hashes(AJP)) == 20
    assert hashes(AJP) == hashes(HTTP)


def test_pings_are_no_requests(tables: capture.CaptureTables) -> None:
    m = tables.messages
    text = [tables.classes[i][1] if i >= 0 else "" for i in m["class_id"]]
    pings = [i for i, t in enumerate(text) if t == "CPING"]
    pongs = [i for i, t in enumerate(text) if t == "CPONG"]
    assert len(pings) == len(pongs) == 20
    assert set(m["kind"][pings].tolist()) == {3}
    assert set(m["kind"][pongs].tolist()) == {2}
