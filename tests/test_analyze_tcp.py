"""TCP evidence of listeners, from connections as the engine reports them."""

from __future__ import annotations

import numpy as np

from tapscope.analyze.tcp import listeners, set_up_ns, syns_sent_again, syns_to, syns_without_answer
from tapscope.store.codes import CloseHow
from tapscope.store.tables import TABLES

SECOND = 1_000_000_000


def connections(rows: list[dict[str, int]]) -> dict[str, np.ndarray]:
    base = {column.name: 0 for column in TABLES["connections"]} | {"syn_ns": -1, "established_ns": -1}
    return {name: np.array([(base | row)[name] for row in rows]) for name in base}


def test_refused_waiting_and_silent_connections_are_told_apart() -> None:
    table = connections(
        [
            {"server_port": 80, "syn_ns": 10, "established_ns": 60},
            {"server_port": 80, "syn_ns": 20, "established_ns": 20 + SECOND, "syn_retransmits": 1},
            {"server_port": 80, "syn_ns": 30, "syn_retransmits": 3},
            {"server_port": 80, "syn_ns": 40, "close_how": CloseHow.RST},
            {"server_port": 3306, "syn_ns": -1, "zero_windows_to_server": 2, "close_how": CloseHow.RST},
        ]
    )
    web, db = listeners(table)
    assert (web.server_port, web.connections, web.handshakes) == (80, 4, 2)
    assert (web.syn_retransmits, web.unanswered_syns, web.refused, web.waited) == (4, 1, 1, 1)
    assert web.setup_max_ns == SECOND
    assert (db.resets, db.zero_windows_to_server, db.setup_p50_ns) == (1, 2, -1)
    assert (web.setup_p50_ns, web.setup_p99_ns) == (50, SECOND)
    assert syns_sent_again(table).tolist() == [1, 2]
    gave_up = table | {"syn_retransmits": table["syn_retransmits"] * 0}
    assert syns_without_answer(table).tolist() == [1, 2]
    assert syns_without_answer(gave_up).tolist() == [2]
    table["server_addr"][2:] = 7
    assert syns_to(table, np.array([7])).tolist() == [2, 3]
    assert syns_to(table, np.array([0, 7])).tolist() == [0, 1, 2, 3]


def test_setting_a_connection_up_belongs_to_its_first_call() -> None:
    table = connections([{"syn_ns": 0, "established_ns": 3 * SECOND}, {"syn_ns": -1}])
    calls = {"conn": np.array([0, 1, 0]), "arrive_ns": np.array([4, 5, 6]) * SECOND}
    assert set_up_ns(calls, table).tolist() == [3 * SECOND, 0, 0]
