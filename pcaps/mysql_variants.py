"""Makes the pcaps/mysql_*.pcap captures: real clients against a real MariaDB on loopback, by tcpdump.

    python pcaps/mysql_variants.py --port 33161 --user tap --password tap --jars DIR [CASE ...]

Needs root (tcpdump), a MariaDB 10.11 that listens on 127.0.0.1 with local_infile=1 and a database `bench`
which the user may change, the `mariadb` command line client, PyMySQL, mysql-connector-python, and for the
JDBC cases a JDK with mysql-connector-j 8.4.0 and mariadb-java-client 3.4.1 in DIR.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent

SCHEMA = """
DROP TABLE IF EXISTS story; DROP TABLE IF EXISTS note;
CREATE TABLE story (id INT PRIMARY KEY, title VARCHAR(80), score DOUBLE, written DATETIME, body TEXT);
CREATE TABLE note (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(200));
INSERT INTO story SELECT seq, CONCAT('story ', seq), seq / 4, '2026-01-02 03:04:05', REPEAT('text ', 40)
  FROM seq_1_to_300;
"""

JDBC = r"""
import java.sql.*;
public class Cases {
  public static void main(String[] a) throws Exception {
    try (Connection c = DriverManager.getConnection(a[1])) { run(a[0], c); }
  }
  static void run(String name, Connection c) throws Exception {
    switch (name) {
      case "cursor" -> {
        String sql = "SELECT id, title, score FROM story WHERE id <= ? ORDER BY id";
        PreparedStatement p = c.prepareStatement(sql);
        for (int n : new int[] {7, 25}) {
          p.setFetchSize(10); p.setInt(1, n);
          try (ResultSet r = p.executeQuery()) { while (r.next()) r.getInt(1); }
        }
        p.close();
      }
      case "prepared" -> {
        for (int n = 1; n <= 5; n++) {
          String sql = "SELECT title, written FROM story WHERE id = ? AND score < ? AND written > ?";
          try (PreparedStatement p = c.prepareStatement(sql)) {
            p.setInt(1, n); p.setDouble(2, 2.5 * n);
            p.setTimestamp(3, Timestamp.valueOf("2025-12-31 23:59:58"));
            try (ResultSet r = p.executeQuery()) { while (r.next()) r.getString(1); }
          }
        }
        try (PreparedStatement p = c.prepareStatement("SELECT nothing FROM nowhere")) {
          p.executeQuery();
        } catch (SQLException e) { }
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
      }
      default -> throw new IllegalArgumentException(name);
    }
  }
}
"""


def _run(command: list[str], text: str | None = None) -> None:
    subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.DEVNULL)


def cases(options: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Every capture by name, with what its client does."""
    login = [f"-u{options.user}", f"-p{options.password}", "-h127.0.0.1", f"-P{options.port}"]
    cli = ["mariadb", "--no-defaults", "--skip-ssl", *login, "bench"]
    queries = (
        "SELECT id, title FROM story WHERE id IN (3, 4);\n"
        "SELECT * FROM story WHERE id < 200;\n"
        "SELECT 'x' AS y;\n"
    )

    def pymysql_connection(**more: object):  # type: ignore[no-untyped-def]
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=options.port,
            user=options.user,
            password=options.password,
            database="bench",
            **more,
        )

    def connector_compressed() -> None:
        import mysql.connector

        connection = mysql.connector.connect(
            host="127.0.0.1",
            port=options.port,
            user=options.user,
            password=options.password,
            database="bench",
            compress=True,
            use_pure=True,
            ssl_disabled=True,
        )
        cursor = connection.cursor()
        for condition in ("id = 5", "id < 60", "score = 1"):
            cursor.execute(f"SELECT id, title, body FROM story WHERE {condition}")
            cursor.fetchall()
        prepared = connection.cursor(prepared=True)
        for n in (3, 4):
            prepared.execute("SELECT title FROM story WHERE id = %s", (n,))
            prepared.fetchall()
        connection.close()

    def local_infile() -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
            table.write("".join(f"{n}\tloaded {n}\n" for n in range(1000, 1400)))
            table.flush()
            Path(table.name).chmod(0o644)
            load = f"LOAD DATA LOCAL INFILE '{table.name}' INTO TABLE note (id, text)"
            _run([*cli, "--local-infile=1", "-e", f"{load}; SELECT COUNT(*) FROM note"])

    def several_statements() -> None:
        from pymysql.constants import CLIENT

        connection = pymysql_connection(client_flag=CLIENT.MULTI_STATEMENTS)
        cursor = connection.cursor()
        update = "UPDATE story SET score = 1 WHERE id = 2"
        cursor.execute(f"SELECT 1; {update}; SELECT title FROM story WHERE id < 4; SELECT nothing")
        try:
            while cursor.nextset():
                pass
        except Exception:  # the last statement fails, as it should
            pass
        cursor.execute("SELECT 2")
        connection.close()

    def big_packet() -> None:
        connection = pymysql_connection(max_allowed_packet=64 << 20)
        cursor = connection.cursor()
        cursor.execute("SELECT LENGTH('" + "x" * 300_000 + "')")
        cursor.execute("SELECT REPEAT('y', 400000), 7")
        cursor.fetchall()
        cursor.execute("SELECT 3")
        connection.close()

    def jdbc(case: str, url: str) -> Callable[[], None]:
        def run() -> None:
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder) / "Cases.java"
                source.write_text(JDBC)
                where = (
                    f"127.0.0.1:{options.port}/bench?user={options.user}&password={options.password}&{url}"
                )
                scheme = "mariadb" if "sslMode=disable" in url else "mysql"
                _run(["java", "-cp", f"{options.jars}/*", str(source), case, f"jdbc:{scheme}://{where}"])

        return run

    connector_j = "sslMode=DISABLED&allowPublicKeyRetrieval=true&useServerPrepStmts=true"
    mariadb_j = "sslMode=disable&useServerPrepStmts=true"
    return {
        "mysql_compressed_cli": lambda: _run([*cli, "--compress"], queries),
        "mysql_compressed_connector_python": connector_compressed,
        "mysql_compressed_connector_j": jdbc("prepared", connector_j + "&useCompression=true"),
        "mysql_compressed_mariadb_j": jdbc("batch", mariadb_j + "&useCompression=true"),
        "mysql_cursor_connector_j": jdbc("cursor", connector_j + "&useCursorFetch=true"),
        "mysql_prepared_connector_j": jdbc("prepared", connector_j),
        "mysql_prepared_mariadb_j": jdbc("prepared", mariadb_j),
        "mysql_pipelined_mariadb_j": jdbc("batch", mariadb_j + "&useBulkStmts=false"),
        "mysql_bulk_mariadb_j": jdbc("batch", mariadb_j + "&useBulkStmts=true"),
        "mysql_rewritten_connector_j": jdbc("batch", connector_j + "&rewriteBatchedStatements=true"),
        "mysql_local_infile": local_infile,
        "mysql_several_statements": several_statements,
        "mysql_big_packet": big_packet,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=3306)
    parser.add_argument("--user", default="tap")
    parser.add_argument("--password", default="tap")
    parser.add_argument("--jars", default=".")
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    every = cases(options)
    login = [f"-u{options.user}", f"-p{options.password}", "-h127.0.0.1", f"-P{options.port}", "bench"]
    for name in options.case or every:
        _run(["mariadb", "--no-defaults", "--skip-ssl", *login], SCHEMA)
        target = options.output / f"{name}.pcap"
        command = ["tcpdump", "-q", "-i", "lo", "-s", "0", "--immediate-mode", "-U", "-w", str(target)]
        tcpdump = subprocess.Popen([*command, f"tcp port {options.port}"], stderr=subprocess.PIPE, text=True)
        assert tcpdump.stderr is not None
        while "listening" not in tcpdump.stderr.readline():
            pass
        time.sleep(0.3)
        every[name]()
        time.sleep(0.7)
        tcpdump.terminate()
        tcpdump.wait()
        if target.stat().st_size > 100_000:
            packed = gzip.compress(target.read_bytes(), 9, mtime=0)
            target.unlink()
            target = target.with_suffix(".pcap.gz")
            target.write_bytes(packed)
        print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
