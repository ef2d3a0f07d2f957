"""Makes the thread logs beside it: nginx, which is driven by events, in front of two services with threads.

    python pcaps/threads_nginx/make.py

Needs nginx (Debian's nginx-light) and an installed tapscope; no root. Eight clients ask nginx for five pages
each, at the same time; each page is one request to a service, which answers after some milliseconds.
"""

from __future__ import annotations

import http.client
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tapscope.validate.threads.record import environment, folder_for_logs

HERE = Path(__file__).resolve().parent
FRONT, SERVICES = 18_080, (18_081, 18_082)
CLIENTS, PAGES = 8, 5

NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream services {{ server 127.0.0.1:{one}; server 127.0.0.1:{two}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{front};
    location / {{ proxy_pass http://services; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""

SERVICE = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(int(self.path[1:]) / 1000)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\\n")
    def log_message(self, *_): pass
ThreadingHTTPServer.daemon_threads = True
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def client(seed: int) -> None:
    """One user, with a connection of its own."""
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", FRONT)
    for _ in range(PAGES):
        connection.request("GET", f"/{chance.randint(2, 30)}")
        connection.getresponse().read()
    connection.close()


def main() -> None:
    """Write the logs, their names without the time of their start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = folder_for_logs(folder / "logs")
        (folder / "nginx.conf").write_text(
            NGINX.format(folder=folder, front=FRONT, one=SERVICES[0], two=SERVICES[1])
        )
        commands = [[sys.executable, "-c", SERVICE, str(port)] for port in SERVICES]
        commands.append(["nginx", "-c", str(folder / "nginx.conf")])
        variables = {"PATH": "/usr/sbin:/usr/bin:/bin", **environment(logs)}
        servers = [subprocess.Popen(command, env=variables) for command in commands]
        time.sleep(1.5)
        users = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        for server in reversed(servers):
            server.send_signal(signal.SIGTERM)
            server.wait(10)
        for old in HERE.glob("*.threads"):
            old.unlink()
        for log in sorted(logs.glob("*.threads")):
            (HERE / f"{log.stem.rpartition('-')[0]}.threads").write_bytes(log.read_bytes())


if __name__ == "__main__":
    main()
