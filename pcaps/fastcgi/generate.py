"""Makes the captures beside it: nginx and php-fpm on loopback, by tcpdump, HTTP and FastCGI in one capture.

    python pcaps/fastcgi/generate.py [CASE ...]

Needs root (tcpdump; the servers run as `nobody`), nginx and php-fpm.
"""

from __future__ import annotations

import argparse
import http.client
import sys
from pathlib import Path
from urllib.parse import urlencode

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from recording import folder_of, recording, server  # noqa: E402

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
    fpm = max(Path("/usr/sbin").glob("php-fpm*"))
    for name in options.case or CASES:
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
            target = options.output / f"{name}.pcap"
            with server(run_app, USER, APP), server(run_web, USER, WEB), recording(target, WEB, APP):
                visit()


if __name__ == "__main__":
    main()
