"""Records the captures in this folder: TLS over loopback, with the secrets that the client logged.

    python make.py [FOLDER]     as root (tcpdump); needs curl, openssl, nginx, mariadb-server, and PyMySQL

Web: Python's http.server under OpenSSL, asked by curl; one capture per version and cipher. Early data: nginx,
asked by OpenSSL's client. Database: MariaDB, asked by PyMySQL, which turns to TLS after the greeting. Keys
and certificates are thrown away.
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


EARLY = {
    "early_taken": "the server takes it",
    "early_refused": "the server has forgotten the session: its keys for tickets are new",
    "early_retried": "the server asks for another group: a HelloRetryRequest",
}

NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3; ssl_early_data on;
    ssl_session_ticket_key {folder}/ticket.key; ssl_ecdh_curve {curves};
    location / {{ return 200 "$request_uri early $ssl_early_data\\n"; }}
  }}
}}
"""


def serve_early(scratch: Path, cert: Path, key: Path, curves: str) -> subprocess.Popen[bytes]:
    config = scratch / "nginx.conf"
    config.write_text(NGINX.format(folder=scratch, port=PORT, cert=cert, key=key, curves=curves))
    server = subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL)
    time.sleep(1)
    return server


def ask_early(session: list[str], early: bytes, later: list[bytes], scratch: Path) -> None:
    """OpenSSL's client; what it is to send once the handshake is over comes on its standard input."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{PORT}", "-tls1_3", "-quiet", *session]
    if early:
        (scratch / "early").write_bytes(early)
        command += ["-early_data", str(scratch / "early")]
    client = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert client.stdin is not None
    for request in later:
        time.sleep(0.5)
        client.stdin.write(request)
        client.stdin.flush()
    time.sleep(0.5)
    client.kill()
    client.wait()


def record_early(out: Path, name: str, scratch: Path, cert: Path, key: Path) -> None:
    def get(path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    ticket, session = scratch / "ticket.key", str(scratch / "session")
    ticket.write_bytes(os.urandom(80))
    server = serve_early(scratch, cert, key, "X25519")
    ask_early(["-sess_out", session], b"", [get("/first/1")], scratch)
    server.terminate()
    server.wait(10)
    if name == "early_refused":
        ticket.write_bytes(os.urandom(80))
    server = serve_early(scratch, cert, key, "P-384" if name == "early_retried" else "X25519")
    keys = out / f"{name}.keys"
    keys.unlink(missing_ok=True)
    early = get("/early/2") + get("/early/3")
    again = [] if name == "early_taken" else [early]
    with Recorder(out / f"{name}.pcap", PORT):
        options = ["-sess_in", session, "-keylogfile", str(keys), "-groups", "X25519:P-384"]
        ask_early(options, early, [*again, get("/later/4")], scratch)
    server.terminate()
    server.wait(10)


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
        for name in EARLY:
            record_early(out, name, Path(scratch), cert, key)
        record_database(out, Path(scratch), cert, key)


if __name__ == "__main__":
    main()
