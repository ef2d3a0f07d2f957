"""Makes pcaps/http2/*.pcap: real HTTP/2 and gRPC servers and clients, captured by tcpdump.

    python pcaps/http2/http2_captures.py [CASE ...]

Needs root, and Debian's nghttp2-server, nghttp2-client, apache2, nginx-light, curl, tcpdump and iproute2;
for the gRPC cases grpcio from PyPI. Everything runs in a network namespace of its own, on a loopback device
with an MTU of 1500, so that segments are as long as on a wire. Namespace and processes are gone at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPACE = f"http2-captures-{os.getpid()}"
PORT = 8080

APACHE = """
ServerName localhost
ServerRoot {folder}
PidFile {folder}/pid
User www-data
Group www-data
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule http2_module {modules}/mod_http2.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule dir_module {modules}/mod_dir.so
ErrorLog {folder}/error.log
DocumentRoot {folder}/docs
Protocols h2c http/1.1
H2Push on
H2PushResource /style.css
H2EarlyHints {hints}
Redirect 302 /old /story/1.html
<Directory {folder}/docs>
  Require all granted
</Directory>
"""

NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} http2; root {folder}/docs;
    location /api/ {{ return 201 "made\\n"; }}
    location /fail {{ return 503; }}
  }}
}}
"""


def inside(command: list[str]) -> list[str]:
    """The command, in the namespace of the captures."""
    return ["ip", "netns", "exec", SPACE, *command]


def run(*command: str, check: bool = True) -> None:
    """A client, to its end."""
    subprocess.run(inside(list(command)), check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def running(*command: str) -> Iterator[None]:
    """A server or tcpdump, while the block runs."""
    process = subprocess.Popen(inside(list(command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1.0)
        yield
        time.sleep(1.0)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def captured(name: str) -> Iterator[None]:
    """What goes over the loopback device of the namespace while the block runs, to NAME.pcap."""
    path = HERE / f"{name}.pcap"
    path.unlink(missing_ok=True)
    with running(
        "tcpdump",
        "-i",
        "lo",
        "-U",
        "--immediate-mode",
        "-B",
        "16384",
        "-Z",
        "root",
        "-w",
        str(path),
        "tcp",
        "port",
        str(PORT),
    ):
        while not path.exists() or path.stat().st_size == 0:
            time.sleep(0.1)
        time.sleep(1.0)
        yield
    print(f"{path.name}: {path.stat().st_size} bytes")


def documents(folder: Path) -> Path:
    """Files to be served."""
    docs = folder / "docs"
    (docs / "story").mkdir(parents=True)
    for number in range(1, 9):
        (docs / "story" / f"{number}.html").write_text(
            f"<h1>Story {number}</h1>\n" + "text " * 20 * number**2
        )
    (docs / "style.css").write_text("h1 { color: navy }\n" * 20)
    (docs / "index.html").write_text("<h1>Stories</h1>\n")
    return docs


def url(path: str) -> str:
    """Address of a file on the server of the case."""
    return f"http://127.0.0.1:{PORT}{path}"


def nghttp2(folder: Path) -> None:
    """nghttpd with its own clients: streams at once, push, upload, trailers, padding, tables, load."""
    docs = documents(folder)
    (folder / "form").write_text("comment=well+done&story=17&empty=")
    options = [
        "--no-tls",
        "-d",
        str(docs),
        "--push=/index.html=/style.css",
        "--echo-upload",
        "--trailer",
        "x-sum: 1",
    ]
    stories = [url(f"/story/{number}.html?page={number}") for number in range(1, 9)]
    form = ["-H", "content-type: application/x-www-form-urlencoded", "-d", str(folder / "form")]
    with running("nghttpd", *options, str(PORT)):
        with captured("nghttp_streams"):
            run("nghttp", "-n", "-H", "cookie: sid=k1; n=7", "-H", "x-user: bob", *stories, url("/nothing/5"))
            run("nghttp", "-n", url("/index.html"))
            run("nghttp", "-n", *form, url("/echo?id=42"))
        with captured("nghttp_padding"):
            run("nghttp", "-n", "-b", "200", "--trailer", "x-end: 2", *form, url("/echo"), *stories[:3])
        with captured("nghttp_large_table"):
            run("nghttp", "-n", "-c", "65536", *stories[:4])
        with captured("nghttp_no_table"):
            run("nghttp", "-n", "-c", "0", *stories[:4])
        with captured("nghttp_long_header"):
            run("nghttp", "-n", "-H", "x-long: " + "0123456789abcdef" * 1800, *stories[:2])
        with captured("h2load"):
            run("h2load", "-n", "60", "-c", "3", "-m", "8", *stories[:4])


def apache(folder: Path) -> None:
    """mod_http2 in the clear with curl: by upgrade and by prior knowledge, push, hints."""
    documents(folder)
    modules = "/usr/lib/apache2/modules"
    paths = ["/story/1.html", "/story/8.html?x=1", "/nothing", "/old", "/index.html"]
    for hints in ("off", "on"):  # curl 7.88 gives up at a 103
        conf = folder / "conf"
        conf.write_text(APACHE.format(folder=folder, port=PORT, modules=modules, hints=hints))
        with running("apache2", "-f", str(conf), "-DFOREGROUND"):
            if hints == "on":
                with captured("apache_push_and_hints"):
                    run("nghttp", "-n", url("/story/1.html"), url("/story/2.html"))
                continue
            with captured("apache_upgrade"):
                run("curl", "-s", "--http2", *map(url, paths))
                run("nghttp", "-nu", "-H", "x-user: bob", url("/story/3.html"), url("/story/4.html"))
            with captured("apache_prior_knowledge"):
                for path in paths:  # curl 7.88 does not use such a connection twice
                    run("curl", "-s", "--http2-prior-knowledge", "-b", "sid=k1", url(path))
                run("curl", "-sI", "--http2-prior-knowledge", url("/story/2.html"))
                run("nghttp", "-n", *map(url, paths))


def nginx(folder: Path) -> None:
    """nginx in the clear with curl and h2load."""
    documents(folder)
    (folder / "conf").write_text(NGINX.format(folder=folder, port=PORT))
    with running("nginx", "-p", str(folder), "-c", str(folder / "conf")), captured("nginx"):
        paths = ["/story/1.html", "/story/8.html", "/api/item/12", "/fail", "/nothing"]
        run("nghttp", "-n", *map(url, paths))
        run("curl", "-s", "--http2-prior-knowledge", "-d", "a=1&b=two", url("/api/form"))
        run("h2load", "-n", "30", "-c", "1", "-m", "5", url("/story/2.html"), url("/api/x"))


def grpc(folder: Path) -> None:
    """grpcio with itself; this program again, as server and as client."""
    del folder
    if importlib.util.find_spec("grpc") is None:
        print("grpc: skipped, grpcio is not installed")
        return
    own = [sys.executable, str(Path(__file__).resolve())]
    with running(*own, "--grpc-server"), captured("grpc"):
        run(*own, "--grpc-client")


def grpc_server() -> None:
    """Methods of every kind; messages are bytes, since their schema does not matter."""
    import grpc  # type: ignore[import-not-found,import-untyped,unused-ignore]

    def fail(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such story")
        return request

    def slow(request: bytes, context: grpc.ServicerContext) -> bytes:
        time.sleep(0.5)
        return request

    def unary(function: Callable[[bytes, grpc.ServicerContext], bytes]) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(function)

    methods = {
        "Read": unary(lambda request, context: b"story " + request),
        "Fail": unary(fail),
        "Slow": unary(slow),
        "List": grpc.unary_stream_rpc_method_handler(lambda request, context: (b"%d" % n for n in range(5))),
        "Write": grpc.stream_unary_rpc_method_handler(lambda requests, context: b"%d" % len(list(requests))),
        "Talk": grpc.stream_stream_rpc_method_handler(
            lambda requests, context: (item * 2 for item in requests)
        ),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tap.Stories", methods),))
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    server.start()
    server.wait_for_termination()


def grpc_client() -> None:
    """Twelve calls: eight answered, one refused, one unknown, one out of time, one cancelled."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{PORT}") as channel:
        read = channel.unary_unary("/tap.Stories/Read")
        for number in range(5):
            read(b"%d" % number, metadata=(("x-request-id", f"r-{number}"),))
        list(channel.unary_stream("/tap.Stories/List")(b"all"))
        channel.stream_unary("/tap.Stories/Write")(iter([b"a" * 3000, b"b", b"c"]))
        list(channel.stream_stream("/tap.Stories/Talk")(iter([b"a", b"b" * 5000])))
        for name, timeout in (("Fail", 5.0), ("Unknown", 5.0), ("Slow", 0.1)):
            with contextlib.suppress(grpc.RpcError):
                channel.unary_unary(f"/tap.Stories/{name}")(b"1", timeout=timeout)
        call = channel.unary_unary("/tap.Stories/Slow").future(b"2")
        time.sleep(0.1)
        call.cancel()
        time.sleep(0.2)


CASES: dict[str, Callable[[Path], None]] = {
    "nghttp2": nghttp2,
    "apache": apache,
    "nginx": nginx,
    "grpc": grpc,
}


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="default: all")
    parser.add_argument("--grpc-server", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--grpc-client", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.grpc_server or arguments.grpc_client:
        return grpc_server() if arguments.grpc_server else grpc_client()
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    try:
        subprocess.run(inside(["ip", "link", "set", "lo", "mtu", "1500", "up"]), check=True)
        for name in arguments.cases or CASES:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder).chmod(0o755)
                CASES[name](Path(folder))
    finally:
        subprocess.run(["ip", "netns", "delete", SPACE], check=True)
    return None


if __name__ == "__main__":
    main()
