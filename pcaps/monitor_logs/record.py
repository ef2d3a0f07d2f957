"""Makes the MariaDB logs beside it: one session of a PHP client, logged in every way MariaDB has.

    python pcaps/monitor_logs/record.py

Needs MariaDB 10.11 (server and client), php-cli with mysqli, and tapscope on the path. The server gets a data
folder of its own that is removed again, and listens on 127.0.0.1. Writes slow_log.tsv (the table), slow.log
(the file), events_statements_history_long.tsv and statements.tsv (what the client itself saw).
"""

from __future__ import annotations

import getpass
import subprocess
import tempfile
import time
from pathlib import Path

from tapscope.validate.monitors.mariadb_export import PERFORMANCE_SCHEMA, SLOW_LOG

HERE = Path(__file__).resolve().parent
PORT = 33917

CLIENT = r"""<?php
$link = mysqli_connect('127.0.0.1', 'u', 'p', 'test', (int) $argv[1]);
$us = fn () => (int) (microtime(true) * 1e6);
$out = fopen($argv[2], 'w');
fwrite($out, "request_id\tordinal\tds_us\tdr_us\tthread_id\tform\n");
$row = function ($id, $ordinal, $sent, $form) use ($out, $us, $link) {
    fwrite($out, "$id\t$ordinal\t$sent\t" . $us() . "\t{$link->thread_id}\t$form\n");
};
$link->query('CREATE TABLE story (id INT PRIMARY KEY, title VARCHAR(80))');
$link->query("INSERT INTO story SELECT seq, CONCAT('story ', seq) FROM seq_1_to_300");
$prepared = $link->prepare('SELECT title FROM story WHERE id = ?');
for ($n = 1; $n <= 20; $n++) {
    $sent = $us();
    $link->query("SELECT count(*)\nFROM story\tWHERE id % $n = 0 /*ID=R$n*/")->fetch_all();
    $row("R$n", 0, $sent, 'text');
    $prepared->bind_param('i', $n);
    $sent = $us();
    $prepared->execute();
    $prepared->get_result()->fetch_all();
    $row("R$n", 1, $sent, 'execute');
    usleep(20000);
}
sleep(2);  // the connection stays open: a row of a closed one has lost its number
"""


def main() -> None:
    """Starts the server, lets the client work, exports, and ends the server."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install = ["mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}"]
        flags = ["--auth-root-authentication-method=normal", f"--datadir={folder / 'data'}"]
        subprocess.run([*install, *flags], check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen(
            [
                "mariadbd",
                "--no-defaults",
                f"--user={getpass.getuser()}",
                f"--datadir={folder / 'data'}",
                f"--socket={folder / 's.sock'}",
                f"--port={PORT}",
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--default-time-zone=+01:00",
                "--log-output=FILE,TABLE",
                "--slow-query-log=ON",
                f"--slow-query-log-file={folder / 'slow.log'}",
                "--long-query-time=0",
                "--performance-schema=ON",
                "--performance-schema-consumer-events-statements-current=ON",
                "--performance-schema-consumer-events-statements-history=ON",
                "--performance-schema-consumer-events-statements-history-long=ON",
            ],
            stderr=subprocess.DEVNULL,
        )
        admin = ["mariadb", "--no-defaults", "-uroot", f"--socket={folder / 's.sock'}", "--batch"]
        try:
            while subprocess.run([*admin, "-e", "SELECT 1"], capture_output=True, check=False).returncode:
                time.sleep(0.2)
            sql = "CREATE USER u@'127.0.0.1' IDENTIFIED BY 'p'; GRANT ALL ON test.* TO u@'127.0.0.1'"
            subprocess.run([*admin, "-e", sql], check=True)
            script = folder / "client.php"
            script.write_text(CLIENT)
            statements = HERE / "statements.tsv"
            client = subprocess.Popen(["php", str(script), str(PORT), str(statements)])
            time.sleep(1.5)
            for file, export in (
                ("slow_log.tsv", SLOW_LOG),
                ("events_statements_history_long.tsv", PERFORMANCE_SCHEMA),
            ):
                done = subprocess.run(admin, input=export, capture_output=True, check=True, text=True)
                (HERE / file).write_text(done.stdout)
            client.wait()
            (HERE / "slow.log").write_bytes((folder / "slow.log").read_bytes())
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
