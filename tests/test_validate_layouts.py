"""Logs in other people's layouts: milliScope's servers, C-JDBC, and everything that MariaDB can write."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from tapscope.store.errors import TapscopeError
from tapscope.validate import events
from tapscope.validate.event_calls import TIERS, EventCalls

REAL = Path(__file__).resolve().parent.parent / "pcaps" / "monitor_logs"
BEGIN_US = 1_795_215_268_000_000


def _load(folder: Path, **texts: str) -> EventCalls:
    for name, text in texts.items():
        (folder / name.replace("_log", ".log").replace("_tsv", ".tsv")).write_text(text)
    return events.load(folder)


def _counters(found: EventCalls) -> dict[str, int]:
    return {name.removeprefix("events."): value for name, value, _ in found.counters}


def _alone(folder: Path, *names: str) -> EventCalls:
    for name in names:
        shutil.copy(REAL / name, folder)
    return events.load(folder)


def _by_thread_and_time(found: EventCalls) -> dict[str, list[tuple[int, int]]]:
    """Request ID -> (arrival, departure) of the client's statements, in order."""
    stays: dict[str, list[tuple[int, int]]] = {}
    for code, arrive, depart in zip(
        *(found.calls[name].tolist() for name in ("request_id", "arrive_ns", "depart_ns")), strict=True
    ):
        if code >= 0:
            stays.setdefault(found.request_ids[code], []).append((arrive, depart))
    return stays


def test_slow_log_table_and_performance_schema_tell_the_same_of_every_statement(tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "schema").mkdir()
    table = _alone(tmp_path / "table", "statements.tsv", "slow_log.tsv")
    schema = _alone(tmp_path / "schema", "statements.tsv", "events_statements_history_long.tsv")
    # The table's zone (UTC+1) has nothing to be found by without another tier's log.
    zone_ns = 3_600_000_000_000
    one, other = _by_thread_and_time(table), _by_thread_and_time(schema)
    assert set(other) == {f"R{n}" for n in range(1, 21)}
    assert all(len(stays) == 2 for stays in other.values()), "the text statement and the prepared one"
    apart = [
        a[0] - zone_ns - b[0] for name in other for a, b in zip(one.get(name, []), other[name], strict=False)
    ]
    assert len(apart) >= 20
    # Both clocks are the same machine's; the mapping of the timer is the earliest of twenty readings.
    assert np.ptp(apart) < 1_000_000
    assert abs(np.median(apart)) < 1_000_000


def test_prepared_statements_of_performance_schema_get_their_id_from_the_connection(tmp_path):
    found = _alone(tmp_path, "statements.tsv", "events_statements_history_long.tsv")
    assert _counters(found)["id_from_statement"] == 20
    # Between log-in and the end of the session: statements, the prepare, and log-ins of the administrator.
    assert {"Statement", "Prepare"} <= set(found.commands)


def test_performance_schema_without_the_clock_says_how_to_export_it(tmp_path):
    with pytest.raises(TapscopeError, match="column TIMER_ZERO_NS is missing"):
        _load(
            tmp_path, x_tsv="EVENT_NAME\tTIMER_START\tTIMER_END\tSQL_TEXT\nstatement/sql/select\t1\t2\tNULL\n"
        )


def test_the_slow_log_file_knows_the_second_and_the_stay(tmp_path):
    found = _alone(tmp_path, "slow.log")
    assert found.sources[0]["calls"] == 42
    assert _counters(found)["db.local_connection"] > 20
    assert set(found.calls["arrive_precision_ns"].tolist()) == {500_000_000}
    (tmp_path / "slow.log").unlink()
    table = _alone(tmp_path, "slow_log.tsv")
    # The same 42 statements: stays to the microsecond, arrivals in the second that the file names.
    assert sorted((found.calls["depart_ns"] - found.calls["arrive_ns"]).tolist()) == sorted(
        (table.calls["depart_ns"] - table.calls["arrive_ns"]).tolist()
    )
    seconds = np.unique(table.calls["arrive_ns"] // 10**9 - 3600)
    assert np.array_equal(np.unique(found.calls["arrive_ns"] // 10**9), seconds)
    ids = {found.request_ids[code] for code in found.calls["request_id"] if code >= 0}
    assert ids == {f"R{n}" for n in range(1, 21)}, "the comment is found in a statement of several lines"


def test_the_slow_log_file_of_mysql_has_microseconds_of_its_own(tmp_path):
    record = (
        "# Time: 2026-11-20T22:54:28.934834Z\n"
        "# User@Host: board[board] @  [10.77.0.30]  Id:    12\n"
        "# Query_time: 0.000700  Lock_time: 0.000001 Rows_sent: 1  Rows_examined: 1\n"
        "SET timestamp=1795215268;\n"
        "SELECT 1 /*ID=R7*/;\n"
    )
    found = _load(tmp_path, slow_log=record)
    assert found.calls["depart_ns"].tolist() == [1_795_215_268_934_834_000]
    assert found.calls["arrive_ns"].tolist() == [1_795_215_268_934_134_000]
    assert found.calls["thread"].tolist() == [12]
    assert found.request_ids == ["R7"]


def test_a_slow_log_file_that_was_cut_in_a_record_counts_one_lost_line(tmp_path):
    whole = (REAL / "slow.log").read_text()
    at = whole.index("# Query_time", len(whole) // 2) + 5
    found = _load(tmp_path, slow_log=whole[:at])
    assert 0 < found.sources[0]["calls"] < 42
    assert _counters(found)["truncated_last_line"] == 1


def _apache(number: int, below: str = "") -> str:
    begin = BEGIN_US + number * 20_000
    return (
        f'10.0.0.1 - - [20/Nov/2026:22:54:28 +0000] "GET /rubbos/Stories?x=1&ID=R{number} HTTP/1.1" 200 512 '
        f"{begin} {begin + 5_000}{below}\n"
    )


def test_the_modified_apache_has_its_four_stamps_in_any_order(tmp_path):
    sent, received = BEGIN_US + 700, BEGIN_US + 4_100
    found = _load(tmp_path, access_log=_apache(0, f" {received} {sent}") + _apache(1))
    assert found.request_ids == ["R0", "R1"]
    assert found.calls["arrive_ns"].tolist() == [BEGIN_US * 1000, (BEGIN_US + 20_000) * 1000]
    assert found.calls["status"].tolist() == [200, 200]
    assert (found.downstream["send_ns"].tolist(), found.downstream["receive_ns"].tolist()) == (
        [sent * 1000],
        [received * 1000],
    )


def test_a_user_cannot_write_stamps_into_the_modified_apache_log(tmp_path):
    faked = _apache(0).replace("x=1", f"x= {BEGIN_US} {BEGIN_US + 9}")
    found = _load(tmp_path, access_log=faked)
    assert found.calls["depart_ns"].tolist() == [(BEGIN_US + 5_000) * 1000]


def test_the_modified_nginx_logs_milliseconds_and_one_pair_per_upstream(tmp_path):
    begin = BEGIN_US // 1000
    request = '"GET /rubbos/Stories?ID=R1 HTTP/1.1" 200 512'
    stay = f"ST(ms)={begin} ET(ms)={begin + 9}"
    below = f"TCST(ms) = {begin + 1} TCET(ms) = {begin + 8}"
    as_printed = f"TCST(ms) = {begin // 1000} TCET(ms) = {begin + 8}"
    lines = [f"10.0.0.1 - - {request} {stay} {below}", f"10.0.0.1 - - {request} {stay} {as_printed}"]
    found = _load(tmp_path, nginx_log="\n".join(lines) + "\n")
    assert (found.calls["depart_ns"] - found.calls["arrive_ns"]).tolist()[0] == 9_000_000
    assert (found.downstream["receive_ns"] - found.downstream["send_ns"]).tolist() == [7_000_000]
    assert _counters(found)["milliscope.downstream_unreadable"] == 1


CJDBC = "22:54:{second:02d},{milli:03d} rubbos S 0 SELECT id\n  FROM stories /*ID=R{number}*/\n"


def _web(number: int) -> str:
    begin = BEGIN_US + number * 20_000
    return f"id=R{number} beg={begin} end={begin + 9_000} D=9000 s=200\n"


def _controller(number: int) -> str:
    micro = number * 20_000 + 2_000
    return CJDBC.format(second=28 + micro // 10**6, milli=micro // 1000 % 1000, number=number)


def test_a_c_jdbc_request_log_without_dates_gets_its_day_from_the_request_ids(tmp_path):
    found = _load(
        tmp_path,
        access_log="".join(map(_web, range(9))),
        request_log="".join(map(_controller, range(9))) + "22:54:29,000 rubbos C 7\n",
    )
    middle = found.of_tier("middle")
    assert len(middle) == 10
    arrive = found.calls["arrive_ns"][middle][:9] - found.calls["arrive_ns"][found.of_tier("web")]
    assert arrive.tolist() == [2_500_000] * 9, "the middle of the millisecond, on the right day"
    assert {found.commands[code] for code in found.calls["command"][middle]} == {"Select", "Commit"}
    assert (found.calls["depart_ns"][middle] == -1).all()


def test_the_dated_layout_of_log4j_is_read_too_and_midnight_is_passed(tmp_path):
    dated = (
        "2026-11-20 22:54:28,934 INFO  virtualdatabase.request.rubbos W 3 0 UPDATE t SET a = 1 /*ID=R1*/\n"
    )
    found = _load(tmp_path, request_log=dated)
    assert found.calls["arrive_ns"].tolist() == [1_795_215_268_934_500_000]
    found = _load(tmp_path, request_log="23:59:59,999 rubbos B 1\n00:00:00,001 rubbos C 1\n")
    assert np.diff(found.calls["arrive_ns"]).tolist() == [2_000_000]
    assert _counters(found)["cjdbc.past_midnight"] == 1


RPC = "request_id\tua_us\tud_us\tconnection\trpc\tds_us\tdr_us\n"
STATEMENT = "request_id\tordinal\tds_us\tdr_us\tthread_id\tform"


def test_the_middleware_is_a_tier_between_the_application_and_the_database(tmp_path):
    at = BEGIN_US
    (tmp_path / "avatica").mkdir()
    (tmp_path / "tomcat").mkdir()
    (tmp_path / "tomcat/requests.tsv").write_text(f"request_id\tua_us\tud_us\nR0\t{at}\t{at + 9_000}\n")
    (tmp_path / "tomcat/statements.tsv").write_text(f"{STATEMENT}\nR0\t0\t{at + 50}\t{at + 900}\t-1\ttext\n")
    (tmp_path / "avatica/rpc.tsv").write_text(
        f"{RPC}R0\t{at + 200}\t{at + 800}\tc-1\tprepareAndExecute\t{at + 300}\t{at + 700}\n"
    )
    (tmp_path / "avatica/statements.tsv").write_text(
        f"{STATEMENT}\trpc\nR0\t0\t{at + 300}\t{at + 700}\t9\ttext\t1\n"
    )
    found = events.load(tmp_path)
    assert found.tiers() == ["app", "middle"]
    assert found.commands[found.calls["command"][found.of_tier("middle")[0]]] == "prepareAndExecute"
    called = [TIERS[code] for code in found.callers["tier"]]
    assert called == ["middle", "db"]
    assert (found.callers["send_ns"] // 1000 - at).tolist() == [50, 300]


def test_httpd_s_own_error_log_layout_is_read(tmp_path):
    found = _load(
        tmp_path,
        access_log=_web(0),
        error_log="[Fri Nov 20 22:54:28.000700 2026] [log_debug:info] [pid 7:tid 8] DS id=R0\n",
    )
    assert found.downstream["send_ns"].tolist() == [(BEGIN_US + 700) * 1000]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_what_the_agents_wrote_nests_from_the_application_to_the_database_driver():
    found = events.load(REAL / "agents")
    assert {tier: len(found.of_tier(tier)) for tier in found.tiers()} == {"app": 8, "middle": 224}
    calls = {row["number"]: row for row in _rows(REAL / "agents/avatica/rpc.tsv")}
    below = _rows(REAL / "agents/avatica/statements.tsv")
    assert len(below) == 76
    for row in below:  # a remote call contains the statements that it makes
        call = calls[row["rpc"]]
        assert int(call["ua_us"]) <= int(call["ds_us"]) <= int(row["ds_us"])
        assert int(row["dr_us"]) <= int(call["dr_us"]) <= int(call["ud_us"])
    above = _rows(REAL / "agents/tomcat/statements.tsv")
    sent = {
        name: [row for row in above if row["request_id"] == name] for name in {r["request_id"] for r in above}
    }
    named = [call for call in calls.values() if call["request_id"] != "-"]
    assert len(sent) == 8
    assert len(named) >= len(above) // 2
    for call in named:  # and lies in a statement of the application with its ID
        assert any(
            int(row["ds_us"]) <= int(call["ua_us"]) and int(call["ud_us"]) <= int(row["dr_us"]) + 1_000
            for row in sent[call["request_id"]]
        ), call
