"""Makes the captures beside it, by tcpdump on loopback: nginx and php-fpm, HTTP and FastCGI in one capture;
and Go's net/http/fcgi, which answers several requests of one connection at once, with a client that asks so.

    python pcaps/fastcgi/generate.py [CASE ...]

Needs root (tcpdump; the servers run as `nobody`), nginx and php-fpm, Go.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from recording import PlainClient, folder_of, recording, server  # noqa: E402

WEB, APP = 28080, 29000
USER = "nobody"

PHP = r"""<?php
switch ($_SERVER['SCRIPT_NAME']) {
  case '/story.php': header('X-Story: 1'); echo "story ", (int) $_GET['id']; break;
  case '/missing.php': http_response_code(404); echo "nothing"; break;
  case '/away.php': header('Location: /story.php?id=1'); break;
  case '/broken.php': error_log('said on stderr'); http_response_code(503); echo "later"; break;
  case '/big.php': for ($i = 0; $i < 4000; $i++) echo str_repeat('line ', 10), "\n"; break;
  case '/early.php': echo "done"; fastcgi_finish_request(); usleep(200000); break;
  case '/slow.php': echo str_pad('first', 9000); flush(); usleep(150000); echo 'last'; break;
  case '/store.php': echo count($_POST), ' ', strlen(file_get_contents('php://input')); break;
}
"""

FPM = """[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
listen = 127.0.0.1:{app}
pm = static
pm.max_children = 3
catch_workers_output = no
"""

NGINX = """daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream app {{ server 127.0.0.1:{app}; {keepalive} }}
  server {{
    listen 127.0.0.1:{web};
    location / {{
      include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME {folder}/app.php;
      fastcgi_pass app; {keep_conn}
    }}
  }}
}}
"""

GO = r"""package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"strconv"
	"strings"
	"time"
)

func answer(w http.ResponseWriter, r *http.Request) {
	ask := r.URL.Query()
	number := func(name string) int { n, _ := strconv.Atoi(ask.Get(name)); return n }
	body, _ := io.ReadAll(r.Body)
	time.Sleep(time.Duration(number("wait")) * time.Millisecond)
	if status := number("status"); status > 0 {
		w.WriteHeader(status)
	}
	for part := 0; part < 1+number("parts"); part++ {
		fmt.Fprintf(w, "%s, %d bytes, part %d\n", r.URL.RequestURI(), len(body), part)
		fmt.Fprintln(w, strings.Repeat(".", number("size")))
		w.(http.Flusher).Flush()
		time.Sleep(time.Duration(number("pause")) * time.Millisecond)
	}
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(fcgi.Serve(listener, http.HandlerFunc(answer)))
}
"""


def visit() -> None:
    """What the client asks: several requests over one HTTP connection, some over others."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection = http.client.HTTPConnection("127.0.0.1", WEB)

    def ask(method: str, target: str, body: str | None = None, **headers: str) -> None:
        connection.request(method, target, body, {name.replace("_", "-"): v for name, v in headers.items()})
        connection.getresponse().read()

    for n in (17, 18):
        ask("GET", f"/story.php?id={n}&from=list", X_Request_Id=f"0f8fad5b-d9cb-469f-a165-70867728950{n}")
    ask("GET", "/missing.php", Cookie="session=abc123; theme=dark")
    ask("GET", "/away.php")
    ask("GET", "/broken.php")
    ask("HEAD", "/story.php?id=19")
    ask("GET", "/big.php")
    ask("GET", "/slow.php")
    ask("GET", "/early.php")
    ask("POST", "/store.php?page=2", urlencode({"title": "a story", "story": 17}), **form)
    ask("POST", "/store.php", urlencode({f"field{n}": "value " * 40 for n in range(100)}), **form)
    ask("POST", "/store.php", "x" * 70_000, Content_Type="text/plain")
    connection.close()


def record(kind: int, request: int, content: bytes = b"") -> bytes:
    """A record of FastCGI."""
    padding = -len(content) % 8
    return struct.pack("!BBHHBx", 1, kind, request, len(content), padding) + content + bytes(padding)


def begin(request: int, role: int = 1) -> bytes:
    """BEGIN_REQUEST on a connection that is kept."""
    return record(1, request, struct.pack("!HB5x", role, 1))


def params(request: int, target: str, method: str = "GET", **more: str) -> bytes:
    """PARAMS and their end."""
    values = {
        "REQUEST_METHOD": method,
        "REQUEST_URI": target,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "app",
        **more,
    }
    pairs = b"".join(struct.pack("!BB", len(k), len(v)) + k.encode() + v.encode() for k, v in values.items())
    return record(4, request, pairs) + record(4, request)


def ask(request: int, target: str) -> bytes:
    """A whole request without a body."""
    return begin(request) + params(request, target) + record(5, request)


def client_at_once() -> PlainClient:
    """A client whose records leave when they are sent: late ones would meet an id that is used again."""
    client = PlainClient(APP)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def ask_several() -> None:
    """Several requests at once on each of two connections; answers overtake and come between each other."""
    client = client_at_once()
    # The later ones are faster.
    client.say(*(ask(n, f"/overtaken/{n}?wait={70 - 10 * n}") for n in range(1, 7)), wait=0.3)
    # Ids are used again; parts of the answers come in turn.
    turns = [ask(n, f"/turns/{n}?parts=4&pause=10&wait={n}&size={300 * n}") for n in range(1, 5)]
    client.say(*turns, wait=0.3)
    # The requests come in turn, too, with bodies.
    form = {"CONTENT_TYPE": "application/x-www-form-urlencoded", "CONTENT_LENGTH": "33"}
    ids = (9, 3, 300)
    targets = {n: f"/store/{n}?parts=1&pause=10" for n in ids}
    client.say(b"".join(begin(n) for n in ids), *(params(n, targets[n], "POST", **form) for n in ids))
    for field in range(3):
        client.say(b"".join(record(5, n, b"f%d=%07d&" % (field, n)) for n in ids), wait=0.01)
    client.say(*(record(5, n) for n in reversed(ids)), wait=0.3)
    # An open one while others come and go.
    client.say(ask(1, "/slow?wait=300"), wait=0.01)
    for n in range(2, 8):
        client.say(ask(2, f"/quick/{n}?status={200 + n}"), wait=0.03)
    client.say(record(9, 0, b"\x0f\0FCGI_MPXS_CONNS"), wait=0.4)
    # A request that is given up, and a role that Go does not know.
    client.say(begin(5) + params(5, "/given/up", "POST", CONTENT_LENGTH="9"), ask(6, "/beside?wait=40"))
    client.say(record(2, 5), begin(7, role=2), wait=0.3)
    client.close()
    client = client_at_once()
    client.say(*(ask(n, f"/large/{n}?parts=1&pause=5&size=2000") for n in range(1, 4)), wait=0.3)
    client.close()


def record_go(target: Path) -> None:
    """The capture of ask_several."""
    with folder_of(USER) as folder:
        (folder / "main.go").write_text(GO)
        build = ["go", "build", "-o", str(folder / "app"), str(folder / "main.go")]
        subprocess.run(build, check=True, env={**os.environ, "GOCACHE": str(folder / "cache")})
        folder.chmod(0o755)
        with server([str(folder / "app"), f"127.0.0.1:{APP}"], USER, APP):
            time.sleep(0.2)
            with recording(target, APP):
                ask_several()


CASES = {
    "nginx_php": ("", ""),
    "nginx_php_kept": ("keepalive 2;", "fastcgi_keep_conn on;"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    fpm = max(Path("/usr/sbin").glob("php-fpm*"), default=Path("php-fpm"))
    for name in options.case or [*CASES, "go_multiplexed"]:
        target = options.output / f"{name}.pcap"
        if name == "go_multiplexed":
            record_go(target)
            continue
        keepalive, keep_conn = CASES[name]
        with folder_of(USER) as folder:
            (folder / "app.php").write_text(PHP)
            (folder / "fpm.conf").write_text(FPM.format(folder=folder, app=APP))
            (folder / "nginx.conf").write_text(
                NGINX.format(folder=folder, app=APP, web=WEB, keepalive=keepalive, keep_conn=keep_conn)
            )
            folder.chmod(0o755)
            run_app = [str(fpm), "-F", "-y", str(folder / "fpm.conf")]
            run_web = ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
            with server(run_app, USER, APP), server(run_web, USER, WEB), recording(target, WEB, APP):
                visit()


if __name__ == "__main__":
    main()
