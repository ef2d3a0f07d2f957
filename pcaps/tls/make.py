"""Records the captures in this folder: TLS over loopback, with the secrets that the client logged.

    python make.py [FOLDER]     as root (tcpdump); needs curl, openssl, mariadb-server, and PyMySQL from PyPI

Web: Python's http.server under OpenSSL, asked by curl; one capture per version and cipher. Database:
MariaDB, asked by PyMySQL, which turns to TLS after the greeting. Keys and certificates are thrown away.
"""

from __future__ import annotations

import http.server
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PORT = 18443
DATABASE_PORT = 13306
WEB = {
    "tls13_aes128gcm": ("1.3", "TLS_AES_128_GCM_SHA256"),
    "tls13_aes256gcm": ("1.3", "TLS_AES_256_GCM_SHA384"),
    "tls13_chacha20": ("1.3", "TLS_CHACHA20_POLY1305_SHA256"),
    "tls12_aes256gcm": ("1.2", "ECDHE-RSA-AES256-GCM-SHA384"),
    "tls12_chacha20": ("1.2", "ECDHE-RSA-CHACHA20-POLY1305"),
    "tls12_ccm": ("1.2", "AES128-CCM"),
    "tls12_cbc_sha256": ("1.2", "ECDHE-RSA-AES128-SHA256"),
    "tls12_cbc_sha1": ("1.2", "AES256-SHA"),
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers /item/N with N bytes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size = int(self.path.rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, *_: object) -> None:
        return


class Recorder:
    """tcpdump on the loopback interface while the block runs."""

    def __init__(self, path: Path, port: int) -> None:
        self.path = path
        self.command = ["tcpdump", "--immediate-mode", "-Z", "root", "-i", "lo", "-U", "-w", str(path)]
        self.command += ["port", str(port)]

    def __enter__(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "listening on" in line:
                break

    def __exit__(self, *_: object) -> None:
        size = -1
        while size != self.path.stat().st_size:
            size = self.path.stat().st_size
            time.sleep(1)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(10)


def certificate(folder: Path) -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*request, "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
    return cert, key


def record_web(out: Path, name: str, cert: Path, key: Path) -> None:
    version, cipher = WEB[name]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.minimum_version = context.maximum_version = (
        ssl.TLSVersion.TLSv1_2 if version == "1.2" else ssl.TLSVersion.TLSv1_3
    )
    if version == "1.2":
        context.set_ciphers(f"{cipher}:@SECLEVEL=0")
        chosen = ["--tls-max", "1.2", "--ciphers", f"{cipher}:@SECLEVEL=0"]
    else:
        chosen = ["--tls13-ciphers", cipher]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = out / f"{name}.keys"
    keys.unlink(missing_ok=True)
    urls = [f"https://localhost:{PORT}/item/{size}" for size in (10, 20000, 3)]
    asked = [part for url in urls for part in ("-o", os.devnull, url)]
    with Recorder(out / f"{name}.pcap", PORT):
        subprocess.run(
            ["curl", "-sk", *chosen, *asked], check=True, env=os.environ | {"SSLKEYLOGFILE": str(keys)}
        )
    server.shutdown()
    server.server_close()


def record_database(out: Path, scratch: Path, cert: Path, key: Path) -> None:
    import pymysql

    data = scratch / "data"
    for path in (scratch, cert, key):  # the server gives up root
        path.chmod(0o755)
    user = ["--user=mysql"] if os.geteuid() == 0 else []
    subprocess.run(
        ["mariadb-install-db", f"--datadir={data}", "--auth-root-authentication-method=normal", *user],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    server = subprocess.Popen(
        ["mariadbd", "--no-defaults", f"--datadir={data}", f"--port={DATABASE_PORT}",
         "--bind-address=127.0.0.1", f"--socket={data}/socket", f"--ssl-cert={cert}", f"--ssl-key={key}",
         f"--pid-file={data}/pid", *user],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(100):
            if (data / "socket").exists():
                break
            time.sleep(0.2)
        admin = ["mariadb", f"--socket={data}/socket", "-uroot", "-e"]
        subprocess.run(
            [*admin, "CREATE DATABASE shop; CREATE TABLE shop.item (id INT, name VARCHAR(20))"], check=True
        )
        subprocess.run(
            [*admin, "CREATE USER tap@localhost IDENTIFIED BY 'tap'; GRANT ALL ON shop.* TO tap@localhost"],
            check=True,
        )
        context = ssl.create_default_context(cafile=cert)
        context.check_hostname = False
        keys = out / "mysql_starttls.keys"
        keys.unlink(missing_ok=True)
        context.keylog_filename = str(keys)
        with Recorder(out / "mysql_starttls.pcap", DATABASE_PORT):
            connection = pymysql.connect(
                host="127.0.0.1", port=DATABASE_PORT, user="tap", password="tap", database="shop", ssl=context
            )
            with connection.cursor() as cursor:
                for row in range(3):
                    cursor.execute("INSERT INTO item VALUES (%s, %s)", (row, f"name {row}"))
                cursor.execute("SELECT name FROM item WHERE id = 2")
                cursor.fetchall()
            connection.commit()
            connection.close()
    finally:
        server.terminate()
        server.wait(30)


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    with tempfile.TemporaryDirectory() as scratch:
        cert, key = certificate(Path(scratch))
        for name in WEB:
            record_web(out, name, cert, key)
        record_database(out, Path(scratch), cert, key)


if __name__ == "__main__":
    main()
