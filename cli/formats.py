"""docs/formats.md, made from the column contracts, the schema of the run file, the enumerations and the
exports.

A table, view or column without a meaning (store/meanings.py) or contract makes `formats_md` fail, so that
none can be added without a word about it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from enum import IntEnum, IntFlag

from tapscope.cli.manual import EXIT_MEANING
from tapscope.report.export import EXPORTS
from tapscope.store import codes, schema
from tapscope.store.meanings import COLUMN_MEANING, EXPORT_COLUMN, TABLE_MEANING, VIEW_COLUMN, VIEW_MEANING
from tapscope.store.rows import SQL_NAME
from tapscope.store.tables import TABLES

INTRO = """# Formats

Made from the program by `python -m tapscope.cli.manual docs`; a test fails when they differ.

All times are int64 nanoseconds since the Unix epoch, UTC, by the clock of the tap (`*_ns`; host logs and
event monitors: by their own clock). -1 in such a column means: not observed. Sizes are bytes. Words are used
as [architecture.md](architecture.md) uses them.

## Run directory

What `tapscope testbed run` leaves and `tapscope trace DIR` takes. Only the capture is needed.

{run_directory}

`cgroup_cpu.csv` has a header line that begins with `time_ns_begin,time_ns_end` and names `usage_ns`, and one
line per sample: times before and after the reading, then what the host's control group counts. All only grow,
but for `dirty_bytes` and `writeback_bytes`. Known beside `usage_ns`: `user_ns`, `system_ns`, `nr_periods`,
`nr_throttled`, `throttled_ns`, `read_bytes`, `written_bytes`, `reads`, `writes`, and the stall times of
pressure, `cpu_some_ns`, `cpu_full_ns`, likewise `io_` and `memory_`.
"""

RUN_DIRECTORY = (
    ("`capture/*.pcap`, also packed", "packets: every file that begins like a capture, merged in time order"),
    (
        "`hosts/HOST/...`",
        "host logs of every known format ([hosts.md](hosts.md)), also `.gz`: loaded as host HOST",
    ),
    (
        "`manifest.json`",
        "describes the run; `hosts` maps host names to addresses and so joins host logs with nodes",
    ),
    ("`events/...`", "logs of the servers; read by `tapscope validate` only"),
    ("`truth/calls.csv.gz`", "true transactions of the requests; read by `tapscope validate` only"),
)

RUN_FILE = """## Run file

One SQLite file (3.37 or later: tables are STRICT), `application_id` 0x54415053 ("TAPS"), `user_version` =
number of the last migration. While it is written it is in WAL mode; each table is written in a transaction of
its own, so that after an interruption what was stored is there: `meta` key `complete` is then `false` and
`stage` names the last stage done. `trace --follow` writes all tables step by step, a transaction each half second, with
`stage` `follow`, and `following` holds `seen_ns` (the latest packet) and `until_ns` (transactions that began before are
stored); rows are then numbered as at the end, except for nodes. Integers that are called by a name, such as Protocol, are listed under
[Codes](#codes) and in the table `code`. 64-bit hashes are stored with their bits as signed integers.

A file of an older version is migrated by commands that write into it (`load-hosts`, `validate`). All others leave
it as it is: they read a migrated copy in the folder for temporary files (`TMPDIR`), which is removed afterwards.
"""


SPOOL = """## Spool

What `tapscope capture --spool DIR` leaves and `tapscope trace DIR` takes, also while the capture goes on.

| path | content |
| --- | --- |
| `manifest.json` | format and version, fingerprint of the salt, what the bounds deleted, and per session (a capture that was started again goes on in the same spool): host, interface, link type, snap length, filter, clock, start, end and how it ended |
| `salt` | 16 bytes that key the evidence hashes of all sessions; mode 0600. Keep it with the spool, or away from it: hashes of guessed values can only be compared with it |
| `classes.jsonl` | a class per line: session, id, protocol, text; the last line of an id counts |
| `000017.npz` | segment: the rows of half a second, an uncompressed zip of numpy arrays (`numpy.load`) |
| `000001-000120.npz` | segments joined into one |
| `*.part` | being written; never read |

Arrays of a segment: `connections`, `messages`, `evidence` and `tcp_events` (absent where there were none) with a field
for each of the columns below (`numpy.load(FILE)["messages"]["begin_ns"]`; in spools of version 1 an array each,
`messages.begin_ns`), and

| array and field | meaning |
| --- | --- |
| `connections.id` | number of the connection since the start of the session. A connection has a row when it is new, again from time to time, and at its end; the last one counts |
| `connections.client_addr`, `server_addr` | row of the segment's own `addresses` |
| `messages.conn`, `tcp_events.conn` | low 32 bits of the connection's number; `first_connection` makes it whole |
| `messages.request`, `evidence.message` | number of a message since the start of the session; the segment's own begin with `first_message` |
| `amendments.message`, `column`, `change`, `value` | what became of messages of earlier segments, in order: number of the message, column of `messages` (in the order of the table message, from conn = 0), 0 set, 1 add, 2 set bits, 3 lower to the value |
| `about` | JSON: session, first_message, first_connection, messages, written_ns, last (the end of the session); counters, sources with their drops and tap points since the start of the session |

A segment gets its name when it is whole. Damaged and missing ones are named, counted and left out.
"""


def formats_md() -> str:
    """The text of docs/formats.md."""
    connection = sqlite3.connect(":memory:")
    for _, _, text in schema.migrations():
        connection.executescript(text)
    directory = _markdown(("path", "content"), list(RUN_DIRECTORY))
    out = [INTRO.replace("{run_directory}\n", directory), SPOOL, RUN_FILE]
    contract = {sql: name for name, sql in SQL_NAME.items()}
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"):
        out.append(
            f"### {table}\n\nOne row is {TABLE_MEANING[table]}.\n"
            if table in contract
            else f"### {table}\n\n{_sentence(TABLE_MEANING[table])}.\n"
        )
        rows = [
            (name, type_, *_column(contract.get(table), table, name))
            for _, name, type_, *_ in connection.execute(f"PRAGMA table_info({table})")
        ]
        out.append(_markdown(("column", "type", "unit", "meaning"), rows))
    out.append("## Views\n")
    for view, columns in views(connection).items():
        out.append(f"### {view}\n\n{_sentence(VIEW_MEANING[view])}.\n")
        out.append(_markdown(("column", "unit", "meaning"), [(c, *_view_column(view, c)) for c in columns]))
    out.append(_host_tables())
    out.append(_codes())
    out.append(_exports())
    out.append("## Exit status\n")
    out.append(
        _markdown(("status", "meaning"), [(str(int(c)), meaning) for c, meaning in EXIT_MEANING.items()])
    )
    return "\n".join(out).rstrip("\n") + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def views(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Columns of every view."""
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY rowid").fetchall()
    return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for (name,) in names}


def _column(contract: str | None, table: str, name: str) -> tuple[str, str]:
    if contract is not None:
        for column in TABLES[contract]:
            if column.name == name:
                return column.unit, column.meaning
    if name == "id":
        return "", "row number, from 0"
    return COLUMN_MEANING[f"{table}.{name}"]


def _view_column(view: str, name: str) -> tuple[str, str]:
    prefix, _, rest = name.partition("_")
    if view == "v_link" and prefix in ("child", "parent") and rest in VIEW_COLUMN:
        unit, meaning = VIEW_COLUMN[rest]
        return unit, f"{prefix}: {meaning}" + ("; NULL when root or unknown" if prefix == "parent" else "")
    if view in ("v_link", "v_span_link") and name == "kind":
        return "", "root, linked or unknown"
    if f"{view}.{name}" in COLUMN_MEANING:
        return COLUMN_MEANING[f"{view}.{name}"]
    if name in VIEW_COLUMN:
        return VIEW_COLUMN[name]
    contracts = ("connections", "messages", "calls", "nodes", "links", "traces", "loads")
    for contract in contracts:
        for column in TABLES[contract]:
            if column.name == name:
                return column.unit, column.meaning
    return COLUMN_MEANING[f"{view.removeprefix('v_')}.{name}"]


def _markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace(" | ", " \\| ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


CPU_SHARES = ("user", "nice", "sys", "wait", "irq", "soft", "steal", "idle", "busy")
HOST_TABLES = (
    (
        "`collectl_cpu`, `collectl_cpu_core`",
        "Collectl raw: whole machine, per core",
        ", ".join(f"`{name}_pct`" for name in CPU_SHARES) + " (busy: all but idle and waiting)",
    ),
    (
        "`collectl_disk`",
        "Collectl raw, per disk",
        "`reads_per_s`, `writes_per_s`, `read_kib_per_s`, `written_kib_per_s`, `busy_pct`, `queue_mean`, "
        "`wait_ms`",
    ),
    ("`collectl_net`", "Collectl raw, per interface", "`rx_bytes_per_s`, `tx_bytes_per_s` and so on"),
    ("`collectl_memory`", "Collectl raw, /proc/meminfo", ""),
    ("`collectl_vmstat`", "Collectl raw, /proc/vmstat", "`NAME_per_s` of counters"),
    (
        "`collectl_stat`",
        "Collectl raw, /proc/stat, /proc/loadavg",
        "`ctxt_per_s`, `intr_per_s`, `processes_per_s`",
    ),
    ("`collectl_tcp`", "Collectl raw, /proc/net/snmp", "`NAME_per_s` of counters"),
    (
        "`collectl_process`",
        "Collectl raw, per process (its name only: arguments are not kept)",
        "`user_pct`, `sys_pct` (of one core), `rss_bytes`, `read_bytes_per_s`, `write_bytes_per_s`",
    ),
    (
        "`collectl_thread`, `collectl_buddy`, `collectl_interrupt`, `collectl_inode`, `collectl_numa`, "
        "`collectl_sock`, `collectl_slab`, `collectl_nfs`, `collectl_infiniband`, `collectl_lustre`, "
        "`collectl_sensor`",
        "Collectl raw, the other subsystems",
        "`NAME_per_s` of counters",
    ),
    ("`collectl_plot`, `collectl_plot_*`", "Collectl plot files, columns as in the file", ""),
    (
        "`cgroup_cpu`",
        "`cgroup_cpu.csv`",
        "`busy_pct`, `user_pct`, `sys_pct`, `throttled_pct` (of one core), `throttled_periods_pct`; "
        "`read_kib_per_s`, `written_kib_per_s`, `reads_per_s`, `writes_per_s`, `dirty_kib`, `writeback_kib`; "
        "`cpu_some_pct`, `cpu_full_pct` and likewise `io_`, `memory_` (of the time)",
    ),
    (
        "`sadf_*`, `sar_*`, `mpstat_*`, `iostat_*`, `pidstat_*`, `vmstat`, `vmstat_disk`",
        "sysstat's programs and vmstat, a table per section",
        "of CPU tables (`NAME_cpu`, `NAME_cpu_core`): `busy_pct`; shares are named as in `collectl_cpu`",
    ),
    (
        "`jvm_gc`, `jvm_gc_concurrent`, `jvm_safepoint`",
        "GC logs: pauses, concurrent phases, stops of all threads; a row lasts exactly as long as its event",
        "",
    ),
    ("`perf_stat`", "`perf stat -I`, a row per interval and place", "`EVENT_per_s`, `task_clock_pct`"),
    ("`esxtop_*`", "esxtop and other PDH-CSV files, a table per object", ""),
    ("`pressure`", "/proc/pressure and `*.pressure` in snapshots", "`stall_pct`"),
    (
        "`cgroup_*`",
        "control-group files in snapshots, a table per file name",
        "`busy_pct`, `user_pct`, `sys_pct`, `throttled_pct` (of one core), `NAME_per_s`",
    ),
    (
        "FORMAT, FORMAT_KIND",
        "a declared format ([hosts.md](hosts.md)), a table per kind",
        "`NAME_per_s` of counters",
    ),
    ("`lock_stat`", "/proc/lock_stat in snapshots", "`wait_pct`, `hold_pct`, `contentions_per_s`"),
    ("`cpu_frequency`", "/proc/cpuinfo and `*_cur_freq` in snapshots, MHz per core", ""),
)


def _host_tables() -> str:
    return """## Tables of host logs

Made from the log's own header when it is loaded, one per file and kind of record; `host_table` and
`host_column` list them. Every one has `begin_ns` and `end_ns`: a sample covers the time from the one before
it (-1: unknown) until it was taken itself, by the host's clock. Raw counters are kept; columns with an empty
`original` were derived from them.

""" + _markdown(("kind", "from", "derived columns"), list(HOST_TABLES))


def _codes() -> str:
    out = ["## Codes\n"]
    kinds: dict[str, type[IntEnum] | type[IntFlag]] = {**schema.CODE_KINDS, **schema.FLAG_KINDS}
    for name, enum in kinds.items():
        members: list[IntEnum | IntFlag] = [m for m in enum if int(m) or not issubclass(enum, IntFlag)]
        listed = ", ".join(f"{int(m)} {str(m.name).lower()}" for m in members)
        title = re.sub(r"(?<!^)(?=[A-Z])", " ", enum.__name__)
        out.append(
            f"**{title}** (`code.kind` = `{name}`){' bits' if issubclass(enum, IntFlag) else ''}: {listed}.\n"
        )
    out.append(
        f"`evidence.kind` is a Token Kind, plus {codes.ID_LIKE} where the value looks like a propagated id.\n"
    )
    return "\n".join(out)


def _exports() -> str:
    out = [
        "## Exports\n\n`tapscope export RUN.db --table TABLE --format csv|jsonl`. CSV: UTF-8, a header line, "
        "comma, quotes where needed, line ends with LF, missing values empty. JSON lines: one object per "
        "line, missing values null. Columns stand in this order; new ones are added at the end only.\n"
    ]
    for table, (view, columns) in EXPORTS.items():
        out.append(f"### export {table}\n")
        if table == "links":
            out.append("One row per call, root calls included. `src` is the requester.\n")
        rows = [(c, *(EXPORT_COLUMN.get(c) or _view_column(view, c))) for c in columns]
        out.append(_markdown(("column", "unit", "meaning"), rows))
    return "\n".join(out)
