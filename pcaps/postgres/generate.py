"""Makes the captures beside it: real clients against a real PostgreSQL on loopback, by tcpdump.

    python pcaps/postgres/generate.py [CASE ...]

Needs root (tcpdump; the server runs as `nobody`), PostgreSQL 15 or newer with its client programs, psycopg 3
and pg8000 from PyPI, openssl, a JDK and the JDBC driver of libpostgresql-jdbc-java.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from recording import folder_of, recording, server  # noqa: E402

PORT = 25432
USER = "nobody"
PASSWORD = "made up for this capture"
DRIVER = "/usr/share/java/postgresql.jar"

SCHEMA = """
DROP TABLE IF EXISTS story, note, account;
CREATE TABLE story (id int PRIMARY KEY, title varchar(80), score float8, price numeric(8,2), tag uuid,
                    written timestamp, body text);
CREATE TABLE note (id serial PRIMARY KEY, text varchar(200) UNIQUE);
CREATE TABLE account (id int PRIMARY KEY, owner int REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO story SELECT n, 'story ' || n, n / 4.0, n + 0.5, md5(n::text)::uuid, '2026-01-02 03:04:05',
  repeat('text ', 40) FROM generate_series(1, 300) n;
"""

SIMPLE = r"""
SELECT id, title FROM story WHERE id IN (3, 4, 5);
SELECT 'it''s', E'tab\there', $$dollar 'quoted' text$$, "title"
  FROM story WHERE id = 7 /* a comment /* nested */ */;
BEGIN \; UPDATE story SET score = 2 WHERE id = 2 \; SELECT title FROM story WHERE id < 4 \; COMMIT;
SELECT nothing FROM nowhere;
SELECT 1 \; SELECT 1/0 \; SELECT 2;
DROP TABLE IF EXISTS never_made;
SET application_name = 'another name';
LISTEN news;
NOTIFY news, 'hello';
SELECT count(*) FROM story
  WHERE id = ANY (ARRAY[1, 2, 3]) AND tag = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b'::uuid;

BEGIN;
INSERT INTO account VALUES (1, 99);
COMMIT;
"""

COPY = r"""
COPY story (id, title) TO STDOUT;
\copy note (text) FROM pstdin
SELECT count(*) FROM note;
\copy note (id) FROM program 'echo no number'
"""

JDBC = r"""
import java.sql.*;
public class Cases {
  public static void main(String[] a) throws Exception {
    try (Connection c = DriverManager.getConnection(a[1])) { run(a[0], c); }
  }
  static void run(String name, Connection c) throws Exception {
    switch (name) {
      case "prepared" -> {
        String sql = "SELECT id, title, tag, written FROM story WHERE id = ? AND score < ? AND title <> ?";
        try (PreparedStatement p = c.prepareStatement(sql)) {
          for (int n = 1; n <= 9; n++) {  // from the fifth execution on a named statement of the server
            p.setInt(1, n); p.setDouble(2, 2.5 * n + 100); p.setString(3, "none " + n);
            try (ResultSet r = p.executeQuery()) { while (r.next()) r.getString(2); }
          }
        }
        try (PreparedStatement p = c.prepareStatement("SELECT nothing FROM nowhere WHERE id = ?")) {
          p.setInt(1, 1);
          p.executeQuery();
        } catch (SQLException e) { }
      }
      case "cursor" -> {
        c.setAutoCommit(false);
        String sql = "SELECT id, title FROM story WHERE id <= ? ORDER BY id";
        try (PreparedStatement p = c.prepareStatement(sql)) {
          p.setFetchSize(10); p.setInt(1, 25);
          try (ResultSet r = p.executeQuery()) { while (r.next()) r.getInt(1); }
        }
        c.commit();
      }
      case "batch" -> {
        c.setAutoCommit(false);
        try (PreparedStatement p = c.prepareStatement("INSERT INTO note (text) VALUES (?)")) {
          for (int n = 0; n < 12; n++) { p.setString(1, "note " + n); p.addBatch(); }
          p.executeBatch();
        }
        try (PreparedStatement p = c.prepareStatement("UPDATE story SET score = ? WHERE id = ?")) {
          for (int n = 0; n < 6; n++) { p.setDouble(1, n); p.setInt(2, n); p.addBatch(); }
          p.executeBatch();
        }
        c.commit();
        try (PreparedStatement p = c.prepareStatement("INSERT INTO note (text) VALUES (?)")) {
          for (int n = 20; n < 30; n++) { p.setString(1, "note " + (n == 24 ? 3 : n)); p.addBatch(); }
          p.executeBatch();  // the fifth is a duplicate: the server skips the rest
        } catch (BatchUpdateException e) { c.rollback(); }
        try (Statement s = c.createStatement()) { s.executeQuery("SELECT count(*) FROM note").next(); }
        c.commit();
      }
      default -> throw new IllegalArgumentException(name);
    }
  }
}
"""


def run(command: list[str], text: str | None = None, **environment: str) -> None:
    subprocess.run(
        command,
        input=text,
        text=True,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PGPASSWORD": PASSWORD, "PGSSLMODE": "disable", **environment},
    )


def psql(text: str, *options: str, **environment: str) -> None:
    connection = f"host=127.0.0.1 port={PORT} user=tap dbname=postgres"
    run(["psql", "-X", "-q", *options, connection], text, **environment)


def connect(**options: object):  # type: ignore[no-untyped-def]
    import psycopg

    return psycopg.connect(
        host="127.0.0.1", port=PORT, user="tap", password=PASSWORD, dbname="postgres", **options
    )


def copy() -> None:
    first, rest = COPY.split("pstdin\n")
    lines = "".join(f"loaded {n}\n" for n in range(400))
    psql(first + "pstdin\n" + lines + "\\.\n" + rest)


def psycopg_plain() -> None:
    import uuid

    import psycopg

    with connect(sslmode="disable", autocommit=True) as connection:
        for n in range(1, 9):  # from the sixth on a prepared statement
            query = "SELECT title, tag, price FROM story WHERE id = %s AND tag <> %s AND title <> %s"
            connection.execute(query, (n, uuid.UUID(int=n), "none"), binary=n % 2 == 0).fetchall()
        with contextlib.suppress(psycopg.Error):
            connection.execute("SELECT 1 / %s", (0,))
        with connection.cursor(name="server_side") as cursor, connection.transaction():
            cursor.itersize = 20
            cursor.execute("SELECT id FROM story WHERE id < %s", (50,))
            list(cursor)
        with connection.cursor().copy("COPY note (text) FROM STDIN") as copying:
            for n in range(50):
                copying.write_row((f"copied {n}",))


def psycopg_pipeline() -> None:
    import psycopg

    with connect(sslmode="disable", autocommit=True) as connection:
        with connection.pipeline() as pipeline:
            cursors = [
                connection.execute("SELECT title FROM story WHERE id = %s", (n,)) for n in range(10, 16)
            ]
            pipeline.sync()
            connection.execute("UPDATE story SET score = score + 1 WHERE id = %s", (10,))
            for cursor in cursors:
                cursor.fetchall()
        with contextlib.suppress(psycopg.Error), connection.pipeline():
            connection.execute("INSERT INTO note (text) VALUES (%s)", ("one",))
            connection.execute("INSERT INTO note (text) VALUES (%s)", ("one",))
            connection.execute("INSERT INTO note (text) VALUES (%s)", ("two",))
            connection.execute("SELECT count(*) FROM note WHERE text = %s", ("one",))
        connection.execute("SELECT count(*) FROM note")


def pg8000() -> None:
    from pg8000 import native

    connection = native.Connection("tap", host="127.0.0.1", port=PORT, password=PASSWORD, database="postgres")
    for n in (3, 4):
        connection.run("SELECT title, score FROM story WHERE id = :id", id=n)
    connection.run("SELECT id, title FROM story WHERE id < 60")
    statement = connection.prepare("SELECT title FROM story WHERE id = :id")
    for n in (5, 6, 7):
        statement.run(id=n)
    statement.close()
    with contextlib.suppress(native.DatabaseError):
        connection.run("SELECT :a / 0", a=1)
    connection.close()


def jdbc(case: str, more: str = "") -> Callable[[], None]:
    def start() -> None:
        with folder_of(USER) as folder:
            source = folder / "Cases.java"
            source.write_text(JDBC)
            where = f"127.0.0.1:{PORT}/postgres?user=tap&password={PASSWORD}&sslmode=disable{more}"
            run(["java", "-cp", DRIVER, str(source), case, f"jdbc:postgresql://{where}"])

    return start


def cancel() -> None:
    import psycopg

    with connect(sslmode="disable", autocommit=True) as connection:
        client = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import time,psycopg,os\nc=psycopg.connect(host='127.0.0.1',port={PORT},"
                f"user='tap',password={PASSWORD!r},dbname='postgres',sslmode='disable')\n"
                "import threading\nthreading.Timer(0.5,c.cancel).start()\n"
                "try:\n c.execute('SELECT pg_sleep(%s)',(20,))\nexcept psycopg.Error: pass\ntime.sleep(20)",
            ],
        )
        time.sleep(2)
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tap'"
        query += " AND pid <> pg_backend_pid()"
        with contextlib.suppress(psycopg.Error):
            connection.execute(query)
        time.sleep(0.3)
        client.kill()
        client.wait()


def pgbench() -> None:
    where = ["-h", "127.0.0.1", "-p", str(PORT), "-U", "tap", "postgres"]
    for mode in ("simple", "extended", "prepared"):
        run(["pgbench", "-n", "-M", mode, "-t", "4", "-c", "2", *where])


def replication() -> None:
    where = ["-h", "127.0.0.1", "-p", str(PORT), "-U", "tap", "-d", "postgres", "--slot", "changes"]
    run(["/usr/lib/postgresql/15/bin/pg_recvlogical", "--create-slot", *where])
    receiver = subprocess.Popen(
        ["/usr/lib/postgresql/15/bin/pg_recvlogical", "--start", "-f", "-", "-s", "1", *where],
        env={**os.environ, "PGPASSWORD": PASSWORD, "PGSSLMODE": "disable"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(1)
    psql("INSERT INTO note (text) VALUES ('streamed'), ('twice');")
    time.sleep(1.5)
    receiver.send_signal(signal.SIGINT)
    receiver.wait()


def refused() -> None:
    psql("SELECT 1", PGPASSWORD="another one")


CASES: dict[str, Callable[[], None]] = {
    "psql_simple": lambda: psql(SIMPLE),
    "psql_copy": copy,
    "psql_tls": lambda: psql("SELECT id, title FROM story WHERE id < 20;", PGSSLMODE="require"),
    "psql_prefer_tls_declined": lambda: psql("SELECT 1;", PGSSLMODE="prefer"),
    "psql_refused": refused,
    "psycopg_plain": psycopg_plain,
    "psycopg_pipeline": psycopg_pipeline,
    "psycopg_cancel": cancel,
    "pg8000": pg8000,
    "jdbc_prepared": jdbc("prepared"),
    "jdbc_simple": jdbc("prepared", "&preferQueryMode=simple"),
    "jdbc_cursor": jdbc("cursor"),
    "jdbc_batch": jdbc("batch"),
    "pgbench": pgbench,
    "replication": replication,
}


@contextlib.contextmanager
def postgres(tls: bool) -> Iterator[None]:
    """A fresh PostgreSQL on PORT."""
    bin_dir = Path(subprocess.check_output(["pg_config", "--bindir"], text=True).strip())
    if not (bin_dir / "initdb").exists():
        bin_dir = max(Path("/usr/lib/postgresql").glob("*/bin"))
    with folder_of(USER) as folder:
        data, secret = folder / "data", folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        initdb = [str(bin_dir / "initdb"), "-D", str(data), "-U", "tap", "-A", "scram-sha-256"]
        initdb += [f"--pwfile={secret}", "-N", "--locale=C.UTF-8"]
        subprocess.run(initdb, check=True, user=USER, stdout=subprocess.DEVNULL)
        settings = [
            f"port={PORT}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={folder}",
            "fsync=off",
        ]
        settings += ["shared_buffers=16MB", "logging_collector=on", "wal_level=logical"]
        if tls:
            key = ["openssl", "req", "-new", "-x509", "-nodes", "-subj", "/CN=localhost", "-days", "3650"]
            key += ["-out", str(data / "server.crt"), "-keyout", str(data / "server.key")]
            subprocess.run(key, check=True, user=USER, stderr=subprocess.DEVNULL)
            settings += ["ssl=on"]
        options = [word for setting in settings for word in ("-c", setting)]
        with server([str(bin_dir / "postgres"), "-D", str(data), *options], USER, PORT):
            time.sleep(1)
            yield


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    for tls in (False, True):
        names = [name for name in options.case or CASES if (name == "psql_tls") == tls]
        if not names:
            continue
        with postgres(tls):
            run(["pgbench", "-i", "-q", "-h", "127.0.0.1", "-p", str(PORT), "-U", "tap", "postgres"])
            for name in names:
                psql(SCHEMA)
                with recording(options.output / f"{name}.pcap", PORT):
                    CASES[name]()


if __name__ == "__main__":
    main()
