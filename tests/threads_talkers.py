"""Pairs of threads that ask and answer over TCP until standard input ends: program for
tests/test_threads_recorder.py. Prints a JSON line per send and receive: own and peer's port, way, time just
before the call in ns, and its place in the stream."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

SIZE = 64
PAIRS = 4

Entry = tuple[int, int, str, int, int]

over = threading.Event()


def talk(connection: socket.socket, asks: bool, said: list[Entry]) -> None:
    own, peer = connection.getsockname()[1], connection.getpeername()[1]
    done, message = 0, b"x" * SIZE
    while not (asks and over.is_set()):
        for sends in (asks, not asks):
            began = time.time_ns()
            moved = connection.send(message) if sends else len(connection.recv(SIZE, socket.MSG_WAITALL))
            if not moved:
                return
            said.append((own, peer, "sent" if sends else "received", began, done))
        done += SIZE
        if asks:
            time.sleep(0.001)
    connection.shutdown(socket.SHUT_WR)


def main() -> None:
    said: list[list[Entry]] = []
    threads = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(PAIRS):
            client = socket.create_connection(listener.getsockname())
            for connection, asks in ((client, True), (listener.accept()[0], False)):
                said.append([])
                threads.append(threading.Thread(target=talk, args=(connection, asks, said[-1])))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    for line in sorted(entry for lines in said for entry in lines):
        print(json.dumps(line))


main()
