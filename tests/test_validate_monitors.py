"""Log readers: what real servers write, and what goes wrong with logs."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate import events
from tapscope.validate.event_calls import TIERS, EventCalls
from tapscope.validate.monitors.lines import UnreadableError, local_ns
from tapscope.validate.monitors.mariadb import duration_ns

REAL = Path(__file__).resolve().parent.parent / "pcaps" / "http_ajp_mysql_groundtruth.logs"

BEGIN_US = 1_795_215_268_000_000
BEGIN_TEXT = "2026-11-20 22:54:28.000000"


def _web(number: int, request_id: str | None = None, stay_us: int = 5_000, jk: str = "0.004000") -> str:
    begin = BEGIN_US + number * 20_000
    return (
        f"id={request_id or f'R{number}'} beg={begin} end={begin + stay_us} D={stay_us} s=200 "
        f'conn=10.0.0.1:{40_000 + number} "GET /x?beg=1&id=7 HTTP/1.1" jk={jk}\n'
    )


def _app(number: int, request_id: str | None = None) -> str:
    begin = BEGIN_US // 1000 + number * 20 + 1
    return (
        f"id={request_id or f'R{number}'} beg={begin} end={begin + 3} D=3000 F=2 s=200 b=45 "
        f'"GET /x HTTP/1.1" thr=ajp-nio-10.0.0.2-8009-exec-1 a=10.0.0.1:{40_000 + number}\n'
    )


SLOW_HEAD = "start_time\tuser_host\tquery_time\tthread_id\tsql_text\n"


def _db(number: int, statement: str, *, hour: int = 22, thread: int = 9) -> str:
    micro = number * 20_000 + 2_000
    return (
        f"2026-11-20 {hour:02d}:54:{28 + micro // 10**6}.{micro % 10**6:06d}\tu[u] @  [10.0.0.2]\t"
        f"00:00:00.000700\t{thread}\t{statement}\n"
    )


def _write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_tsv", ".tsv").replace("_log", ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _counters(found: EventCalls) -> dict[str, int]:
    return {name: value for name, value, _ in found.counters}


def _row(found: EventCalls, tier: str, request_id: str) -> dict[str, int]:
    rows = [
        row
        for row in found.of_tier(tier).tolist()
        if found.calls["request_id"][row] == found.request_ids.index(request_id)
    ]
    return {name: int(values[rows[0]]) for name, values in found.calls.items()} | {"row": rows[0]}


@pytest.fixture(scope="module")
def real() -> EventCalls:
    return events.load(REAL)


def test_the_logs_of_real_servers_are_read_whole(real):
    assert {tier: len(real.of_tier(tier)) for tier in real.tiers()} == {"web": 26, "app": 573, "db": 39}
    assert all(source["unreadable_lines"] == 0 for source in real.sources)
    zones = {source["monitor"]: source["zone"] for source in real.sources}
    assert zones["apache error log"] == zones["mariadb general log table"] == "UTC+0 h (found by IDs)"


def test_one_real_request_has_the_stamps_of_its_servers_between_those_of_the_wire(real):
    # Seconds after 1795215260 on the wire: HTTP request 8.997608, AJP 8.998085, PREPARE 8.998631,
    # EXECUTE 8.999914, AJP end 9.003386, HTTP response 9.003746.
    origin = 1_795_215_260 * 10**9
    web, app = _row(real, "web", "JK3"), _row(real, "app", "JK3")
    assert web["arrive_ns"] - origin == 8_997_711_000
    assert web["depart_ns"] - origin == 9_003_766_000
    assert abs(app["arrive_ns"] - origin - 8_998_085_000) <= app["arrive_precision_ns"]
    assert abs(app["depart_ns"] - origin - 9_003_386_000) <= app["depart_precision_ns"]
    assert app["arrive_precision_ns"] < 200_000, "the application's own stamps narrow the millisecond down"
    below = {name: values[real.downstream["call"] == web["row"]] for name, values in real.downstream.items()}
    assert (below["send_ns"] - origin).tolist() == [8_997_769_000]
    assert (below["receive_ns"] - origin).tolist() == [8_997_769_000 + 5_942_000]


def test_a_request_through_mod_proxy_ajp_returns_at_its_end_response_line(real):
    web = _row(real, "web", "PX3")
    below = real.downstream["receive_ns"][real.downstream["call"] == web["row"]]
    assert len(below) == 1
    assert web["arrive_ns"] < below[0] < web["depart_ns"]


def test_prepared_and_text_statements_carry_their_id_in_a_comment(real):
    ids = [real.request_ids[code] for code in real.calls["request_id"][real.of_tier("db")] if code >= 0]
    assert ids.count("JK3") == 2  # Prepare and Execute
    assert ids.count("PX3") == 1
    assert (real.calls["depart_ns"][real.of_tier("db")] == -1).all()


def test_formats_are_told_by_content_not_by_name(tmp_path):
    for name, other in (("access.log", "one.txt"), ("tomcat_access.log", "two"), ("error.log", "three.dat")):
        shutil.copy(REAL / name, tmp_path / other)
    found = events.load(tmp_path)
    assert [source["monitor"] for source in found.sources] == [
        "apache access log",
        "apache error log",
        "tomcat access log",
    ]


def test_a_log_in_the_wrong_format_names_file_line_and_what_was_expected(tmp_path):
    _write(tmp_path, access_log='127.0.0.1 - - [20/Nov/2026:22:54:28 +0000] "GET / HTTP/1.1" 200 5\n' * 3)
    with pytest.raises(TapscopeError) as error:
        events.load(tmp_path)
    assert error.value.path == str(tmp_path / "access.log")
    assert "line 1 is not an Apache access log line with beg=" in str(error.value)
    assert "docs/validating.md" in str(error.value)


def test_a_log_that_turns_into_something_else_names_the_first_such_line(tmp_path):
    _write(tmp_path, access_log="".join(map(_web, range(3))) + "garbage\n" * 4)
    with pytest.raises(TapscopeError, match="line 4 is not an Apache access log line"):
        events.load(tmp_path)


def test_a_table_without_a_needed_column_says_which(tmp_path):
    _write(tmp_path, slow_log_tsv="start_time\tquery_time\tthread_id\n2026-11-20 22:54:28\t00:00:01\t4\n")
    with pytest.raises(TapscopeError, match="line 1: column sql_text is missing"):
        events.load(tmp_path)


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_no_folder_and_no_log_are_errors_with_a_remedy(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TapscopeError) as error:
        events.load(tmp_path / folder)
    assert error.value.remedy


def test_bad_lines_are_counted_and_leave_a_gap_where_they_were(tmp_path):
    lines = [_web(number) for number in range(20)]
    lines[10] = "id=R10 beg=what\n"
    found = events.load(_write(tmp_path, access_log="".join(lines)))
    assert len(found.of_tier("web")) == 19
    assert _counters(found)["events.unreadable_line"] == 1
    lost_ns = (BEGIN_US + 10 * 20_000) * 1000
    assert found.gaps["begin_ns"][0] < lost_ns < found.gaps["end_ns"][0]
    assert found.gaps["end_ns"][0] - found.gaps["begin_ns"][0] < 100_000_000


def test_a_cut_last_line_is_counted_and_not_read(tmp_path):
    whole = "".join(map(_web, range(5)))
    found = events.load(_write(tmp_path, access_log=whole[:-9]))
    assert len(found.of_tier("web")) == 4
    assert _counters(found)["events.truncated_last_line"] == 1
    assert len(found.gaps["begin_ns"]) == 1


def test_rotated_and_compressed_files_are_one_log_and_repeated_lines_count_once(tmp_path):
    (tmp_path / "access.log.2.gz").write_bytes(gzip.compress("".join(map(_web, range(5))).encode()))
    # The rotation was copied: lines 3 and 4 stand in two files.
    _write(tmp_path, **{"access_log.1": "".join(map(_web, range(3, 9))), "access_log": _web(9)})
    found = events.load(tmp_path)
    assert [found.request_ids[code] for code in found.calls["request_id"]] == [f"R{n}" for n in range(10)]
    assert _counters(found)["events.duplicate_line"] == 2
    assert (np.diff(found.calls["arrive_ns"]) > 0).all()


def test_a_compressed_log_that_is_cut_is_read_as_far_as_it_goes(tmp_path):
    text = "".join(_web(number, stay_us=4_000 + number * 7) for number in range(400)).encode()
    packed = gzip.compress(text)
    (tmp_path / "access.log.1.gz").write_bytes(packed[: len(packed) // 2])
    found = events.load(tmp_path)
    assert 0 < len(found.of_tier("web")) < 400
    assert _counters(found)["events.truncated_compressed_file"] == 1


def test_missing_and_repeated_ids_are_counted_and_their_calls_kept(tmp_path):
    lines = [_web(0, "-"), _web(1, "A"), _web(2, "A"), _web(3, "-")]
    found = events.load(_write(tmp_path, access_log="".join(lines)))
    assert len(found.of_tier("web")) == 4
    counters = _counters(found)
    assert counters["events.web.missing_id"] == 2
    assert counters["events.web.duplicate_id"] == 1


def _nginx(end: str, stay: str, request: str = "GET /x HTTP/1.1") -> str:
    return f'id=R0 end={end} D={stay} s=200 conn=10.0.0.1:40000 pid=7:1 "{request}" "/x" up=10.0.0.2:9000\n'


def test_nginx_logs_the_departure_and_the_stay_in_milliseconds(tmp_path):
    found = events.load(_write(tmp_path, nginx__nginx_log=_nginx("1795215268.025", "0.019")))
    assert found.tiers() == ["web"]
    row = _row(found, "web", "R0")
    assert (row["arrive_ns"], row["depart_ns"]) == (1_795_215_268_006_000_000, 1_795_215_268_025_000_000)
    assert (row["client_port"], row["status"]) == (40_000, 200)
    assert row["arrive_precision_ns"] == 1_000_000


def test_a_request_to_nginx_cannot_fake_a_field(tmp_path):
    faked = _nginx("1795215268.025", "0.019", "GET /a id=EVIL end=1 s=500 HTTP/1.1")
    found = events.load(_write(tmp_path, access_log=faked))
    assert (found.request_ids, found.calls["status"].tolist()) == (["R0"], [200])


@pytest.mark.parametrize("stamp", ["1795215268025", "1795215268.02", "-"])
def test_stamps_that_nginx_does_not_write_are_bad_lines(tmp_path, stamp):
    good = _nginx("1795215268.025", "0.019")
    found = events.load(
        _write(tmp_path, nginx_log=good + good.replace("id=R0", "id=R1") + _nginx(stamp, "0.019"))
    )
    assert len(found.of_tier("web")) == 2
    assert _counters(found)["events.unreadable_line"] == 1


def test_a_request_line_cannot_fake_a_field(tmp_path):
    faked = _web(0).replace("GET /x?beg=1&id=7", "GET /a id=EVIL beg=1 s=500")
    found = events.load(_write(tmp_path, access_log=faked))
    assert found.request_ids == ["R0"]
    assert found.calls["status"].tolist() == [200]


def test_an_application_without_access_log_gives_its_own_stamps_as_calls(tmp_path):
    ua = BEGIN_US + 1_000
    _write(
        tmp_path,
        requests_tsv=f"request_id\tua_us\tud_us\tstatus\nR0\t{ua}\t{ua + 2_500}\t200\n",
        statements_tsv="request_id\tordinal\tds_us\tdr_us\tthread_id\tform\n"
        f"R0\t0\t{ua + 9}\t{ua + 99}\t9\ttext\n",
    )
    found = events.load(tmp_path)
    assert found.calls["arrive_ns"].tolist() == [ua * 1000]
    assert found.calls["depart_ns"].tolist() == [(ua + 2_500) * 1000]
    assert found.downstream["thread"].tolist() == [9]


def test_database_ids_come_from_comment_bound_string_or_the_connection_s_statement(tmp_path):
    ds = BEGIN_US + 2 * 20_000 + 1_900
    _write(
        tmp_path,
        apache__access_log="".join(map(_web, range(4))),
        tomcat__access_log="".join(map(_app, range(4))),
        tomcat__statements_tsv="request_id\tordinal\tds_us\tdr_us\tthread_id\tform\n"
        f"R2\t0\t{ds}\t{ds + 900}\t9\tcommit\n",
        mariadb__slow_log_tsv=SLOW_HEAD
        + _db(0, "SELECT 1 /*ID=R0*/")
        + _db(1, "SELECT 1 WHERE 'R1' <> ''")
        + _db(2, "COMMIT")
        + _db(3, "SELECT 'nobody knows this'"),
    )
    found = events.load(tmp_path)
    ids = [
        found.request_ids[code] if code >= 0 else ""
        for code in found.calls["request_id"][found.of_tier("db")]
    ]
    assert ids == ["R0", "R1", "R2", ""]
    assert _counters(found)["events.id_from_statement"] == 1
    stay = (found.calls["depart_ns"] - found.calls["arrive_ns"])[found.of_tier("db")]
    assert set(stay.tolist()) == {700_000}


def test_rows_of_the_local_socket_are_left_out_and_counted(tmp_path):
    local = _db(0, "SET GLOBAL x = 1").replace("u[u] @  [10.0.0.2]", "root[root] @ localhost []")
    found = events.load(_write(tmp_path, slow_log_tsv=SLOW_HEAD + local + _db(1, "SELECT 1")))
    assert len(found.of_tier("db")) == 1
    assert _counters(found)["events.db.local_connection"] == 1


@pytest.mark.parametrize(("hour", "zone"), [(23, "UTC+1 h (found by IDs)"), (17, "UTC-5 h (found by IDs)")])
def test_a_local_time_zone_is_found_from_request_ids(tmp_path, hour, zone):
    rows = "".join(_db(number, f"SELECT 1 /*ID=R{number}*/", hour=hour) for number in range(4))
    _write(tmp_path, access_log="".join(map(_web, range(4))), slow_log_tsv=SLOW_HEAD + rows)
    found = events.load(tmp_path)
    assert found.sources[-1]["zone"] == zone
    apart = found.calls["arrive_ns"][found.of_tier("db")] - found.calls["arrive_ns"][found.of_tier("web")]
    assert apart.tolist() == [2_000_000] * 4
    assert found.sources[-1]["first_ns"] == (BEGIN_US + 2_000) * 1000


def test_a_given_time_zone_is_used_and_a_zone_that_cannot_be_known_is_counted(tmp_path):
    _write(tmp_path, slow_log_tsv=SLOW_HEAD + _db(0, "SELECT 1"))
    given = events.load(tmp_path, zone="Europe/Berlin")
    assert given.calls["arrive_ns"].tolist() == [(BEGIN_US + 2_000 - 3_600_000_000) * 1000]
    assumed = events.load(tmp_path)
    assert assumed.calls["arrive_ns"].tolist() == [(BEGIN_US + 2_000) * 1000]
    assert _counters(assumed)["events.zone_assumed"] == 1
    with pytest.raises(TapscopeError) as error:
        events.load(tmp_path, zone="Mars/Olympus")
    assert error.value.exit_code == ExitCode.USAGE


def test_callers_are_the_client_the_web_server_and_the_application(tmp_path):
    ds, start = BEGIN_US + 2_000, BEGIN_US * 1000 - 90_000
    _write(
        tmp_path,
        run__apache__access_log=_web(0),
        run__apache__error_log=f"[{BEGIN_TEXT}] [log_debug:info] [pid 1:tid 2] DS id=R0\n",
        run__tomcat__access_log=_app(0),
        run__tomcat__statements_tsv="request_id\tordinal\tds_us\tdr_us\tthread_id\tform\n"
        f"R0\t0\t{ds}\t{ds + 300}\t9\tprepare\nR0\t1\t{ds + 400}\t{ds + 900}\t9\texecute\n",
    )
    client = tmp_path / "requests.csv"
    client.write_text(f"request_id,user,start_ns,end_ns\nR0,1,{start},{start + 7_000_000}\nR1,1,{start},-1\n")
    found = events.load(tmp_path / "run", more=[client])
    callers = {name: values.tolist() for name, values in found.callers.items()}
    assert [TIERS[code] for code in callers["tier"]] == ["web", "app", "db", "db"]
    assert callers["send_ns"] == [start, BEGIN_US * 1000, ds * 1000, (ds + 400) * 1000]
    assert callers["receive_ns"][:2] == [start + 7_000_000, BEGIN_US * 1000 + 4_000_000]
    assert [found.commands[code] if code >= 0 else "" for code in callers["command"]] == [
        "", "", "prepare", "execute",
    ]  # fmt: skip
    assert _counters(found)["events.client.unanswered"] == 1


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1970-01-01 00:00:01", 1_000_000_000),
        ("1970-01-01 00:00:01.5", 1_500_000_000),
        ("2026-11-20 22:54:28.934834", 1_795_215_268_934_834_000),
    ],
)
def test_local_stamps_are_read_to_the_microsecond(text, expected_ns):
    assert local_ns(text) == expected_ns


@pytest.mark.parametrize("text", ["", "today", "2026-11-20 22:54:28+01:00", "1.x", "2026-11-20 22:54:28.-5"])
def test_other_stamps_are_not_guessed(text):
    with pytest.raises(UnreadableError):
        local_ns(text)


def test_query_times_are_read_to_the_microsecond():
    assert duration_ns("01:02:03.000456") == (3_723 * 10**6 + 456) * 1_000
    assert duration_ns("00:00:07") == 7 * 10**9
    with pytest.raises(UnreadableError):
        duration_ns("7")
