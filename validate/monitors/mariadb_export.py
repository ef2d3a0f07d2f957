"""SQL that exports what MariaDB logged into tables: run with `mariadb --batch`, it prints what the readers
read."""

from __future__ import annotations

SLOW_LOG = (
    "SELECT start_time, user_host, query_time, lock_time, rows_sent, rows_examined, db, thread_id, sql_text"
    " FROM mysql.slow_log"
)

_CLOCK_READINGS = 20
"""The wall clock is read a little after the server's timer: the earliest of several readings is the best."""

_READ_CLOCK = (
    "SET @zero = LEAST(@zero, (SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) * 1000"
    " - TIMER_START DIV 1000 FROM performance_schema.events_statements_current"
    " JOIN performance_schema.threads USING (THREAD_ID) WHERE PROCESSLIST_ID = CONNECTION_ID()));\n"
)

PERFORMANCE_SCHEMA = (
    "SET @zero = 9223372036854775807;\n"
    + _READ_CLOCK * _CLOCK_READINGS
    # No inner join: the rows of connections that are closed are to stay.
    + "SELECT h.THREAD_ID, t.PROCESSLIST_ID, t.PROCESSLIST_HOST, h.EVENT_NAME, h.TIMER_START, h.TIMER_END,"
    " h.SQL_TEXT, h.NESTING_EVENT_LEVEL, @zero AS TIMER_ZERO_NS"
    " FROM performance_schema.events_statements_history_long h"
    " LEFT JOIN performance_schema.threads t USING (THREAD_ID)"
    " WHERE t.PROCESSLIST_ID IS NULL OR t.PROCESSLIST_ID <> CONNECTION_ID();\n"
)
