"""Makes the captures beside it: redis-cli, redis-benchmark and plain sockets against a Redis on loopback.

    python pcaps/redis/generate.py [CASE ...]

Needs root (tcpdump; the server runs as `nobody`), redis-server and redis-tools (7.0 or newer).
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from recording import PlainClient, cases_to_record, folder_of, recording, server  # noqa: E402

PORT = 26379
USER = "nobody"

CLI = r"""
SET user:42:name "Ada Lovelace"
GET user:42:name
GET user:43:name
HSET session:0f8fad5bd9cb469fa165708677289500 user 42 page /story/17
HGETALL session:0f8fad5bd9cb469fa165708677289500
INCR counter
LPUSH queue:mail 1 2 3
LRANGE queue:mail 0 -1
INCR user:42:name
NOSUCHCOMMAND 1
MULTI
INCR counter
GET counter
EXEC
EVAL "return redis.call('GET', KEYS[1])" 1 counter
CONFIG GET maxmemory
CLIENT SETNAME tool
ZADD board 10 a 20 b
ZREVRANGEBYSCORE board +inf -inf WITHSCORES
EXPIRE user:42:name 100
"""


def cli(text: str, *options: str) -> None:
    subprocess.run(
        ["redis-cli", "-p", str(PORT), *options], input=text, text=True, check=True, stdout=subprocess.DEVNULL
    )


def command(*words: str) -> bytes:
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode()


Client = partial(PlainClient, PORT)


def pipeline() -> None:
    client = Client()
    for start in (0, 10, 20):
        client.say(b"".join(command("SET", f"item:{n}", f"value {n}") for n in range(start, start + 10)))
        client.say(*(command("GET", f"item:{n}") for n in range(start, start + 10)))
    client.say(
        command("SET", "big:1", "x" * 200_000), command("GET", "big:1"), command("DEL", "big:1"), wait=0.3
    )
    client.say(b"PING\r\n", b"SET inline:1 abc\r\nGET inline:1\r\n", b"*0\r\n\r\n", command("ECHO", "done"))
    client.say(
        command("CLIENT", "REPLY", "OFF"), command("SET", "quiet:1", "a"), command("CLIENT", "REPLY", "ON")
    )
    client.say(command("GET", "quiet:1"))
    client.close()


def pubsub() -> None:
    listener, speaker = Client(), Client()
    listener.say(command("SUBSCRIBE", "news", "weather"))
    for n in range(3):
        speaker.say(command("PUBLISH", "news", f"item {n}"))
        listener.say()
    listener.say(command("PING"))
    listener.say(command("UNSUBSCRIBE"))
    listener.say(command("GET", "news"))
    listener.close()
    speaker.close()


def resp3() -> None:
    client, other = Client(), Client()
    client.say(command("HELLO", "3"))
    client.say(command("CLIENT", "TRACKING", "ON"))
    client.say(command("HSET", "user:7", "name", "Eve", "age", "31"), command("HGETALL", "user:7"))
    other.say(command("HSET", "user:7", "age", "32"))
    client.say(command("SADD", "tags", "a", "b"), command("SMEMBERS", "tags"))
    client.say(command("ZADD", "board", "1.5", "a"), command("ZSCORE", "board", "a"), command("GET", "none"))
    client.say(command("SUBSCRIBE", "news"), command("PING"))
    other.say(command("PUBLISH", "news", "hello"))
    client.say(command("GET", "tags"))
    client.close()
    other.close()


def blocking() -> None:
    waiter, pusher = Client(), Client()
    waiter.socket.sendall(command("BLPOP", "jobs", "5"))
    time.sleep(0.3)
    pusher.say(command("RPUSH", "jobs", "job 1"))
    waiter.say()
    waiter.say(command("BLPOP", "jobs", "0.2"), wait=0.5)
    waiter.close()
    pusher.close()


def streams() -> None:
    watcher, replica, writer = Client(), Client(), Client()
    watcher.say(command("MONITOR"))
    replica.say(command("PING"))
    replica.say(command("REPLCONF", "listening-port", "1"))
    replica.say(command("PSYNC", "?", "-1"), wait=7)
    writer.say(command("SET", "a", "1"), command("GET", "a"))
    watcher.say()
    replica.say(command("REPLCONF", "ACK", "1"))
    for client in (watcher, replica, writer):
        client.close()


def benchmark() -> None:
    for options in (["-c", "2"], ["-c", "1", "-P", "8"]):
        command_line = ["redis-benchmark", "-p", str(PORT), "-q", "-n", "40", "-t", "get,set,lpush", *options]
        subprocess.run(command_line, check=True, stdout=subprocess.DEVNULL)


CASES = {
    "cli": lambda: cli(CLI),
    "cli_resp3": lambda: cli(CLI, "-3"),
    "pipeline": pipeline,
    "pubsub": pubsub,
    "resp3": resp3,
    "blocking": blocking,
    "streams": streams,
    "benchmark": benchmark,
}


def main() -> None:
    for name, target in cases_to_record(__doc__, CASES, HERE):
        with folder_of(USER) as folder:
            start = ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--dir", str(folder)]
            start += ["--save", "", "--logfile", str(folder / "log"), "--repl-diskless-sync-delay", "0"]
            with server(start, USER, PORT), recording(target, PORT):
                CASES[name]()


if __name__ == "__main__":
    main()
