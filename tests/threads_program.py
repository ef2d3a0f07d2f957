"""Talks TCP to itself in every way that the recorder knows, and writes down what it did: program for
tests/test_threads_recorder.py. Prints JSON lines: thread id, socket's own port, way, bytes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import threading

lines: list[str] = []


def note(connection: socket.socket, way: str, size: int) -> None:
    entry = (os.getpid(), threading.get_native_id(), connection.getsockname()[1], way, size)
    lines.append(json.dumps(entry))


def exchange(client: socket.socket, server: socket.socket) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"f" * 3000)
        file.flush()
        senders = [
            lambda s: s.send(b"a" * 10),
            lambda s: os.write(s.fileno(), b"b" * 20),
            lambda s: os.writev(s.fileno(), [b"c" * 30, b"d" * 40]),
            lambda s: s.sendmsg([b"e" * 50]),
            lambda s: os.sendfile(s.fileno(), file.fileno(), 0, 3000),
            lambda s: s.send(b"g" * 60, socket.MSG_NOSIGNAL),
        ]
        receivers = [
            lambda s: len(s.recv(65536)),
            lambda s: len(os.read(s.fileno(), 65536)),
            lambda s: os.readv(s.fileno(), [bytearray(7), bytearray(65536)]),
            lambda s: len(s.recvmsg(65536)[0]),
            lambda s: s.recv_into(bytearray(65536)),
            lambda s: len(s.recvfrom(65536)[0]),
        ]
        for send, receive in zip(senders, receivers, strict=True):
            for one, other in ((client, server), (server, client)):
                sent = send(one)
                note(one, "sent", sent)
                got = 0
                other.recv(1, socket.MSG_PEEK)  # looks, and takes nothing
                while got < sent:
                    size = receive(other)
                    note(other, "received", size)
                    got += size


def pair(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []
    for _ in range(4):
        client, server = pair(listener)
        threads.append(threading.Thread(target=exchange, args=(client, server)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    # A copy of a descriptor is the same connection; the original may go.
    client, server = pair(listener)
    copy = socket.socket(fileno=os.dup(client.fileno()))
    client.close()
    exchange(copy, server)
    # Something else under the number of a closed connection is no connection.
    number = server.fileno()
    server.close()
    copy.close()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), number)
        os.write(number, b"not a connection")
    # Nothing there to be had, and UDP: not noted.
    client, server = pair(listener)
    server.setblocking(False)
    for attempt in (server.recv, server.recv):
        with contextlib.suppress(BlockingIOError):
            attempt(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"x", listener.getsockname())
    server.setblocking(True)
    # A child goes on with what it inherits.
    child = os.fork()
    if child == 0:
        lines.clear()
        exchange(client, server)
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    sys.stdout.write("\n".join(lines) + "\n")


main()
