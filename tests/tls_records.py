"""Records of TLS 1.3 as a peer seals them, from secrets of one's own: AES-128-GCM by OpenSSL's library."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import hmac
import struct
from pathlib import Path

APPLICATION_DATA, HANDSHAKE = 23, 22
KEY_UPDATE, FINISHED, ENCRYPTED_EXTENSIONS, END_OF_EARLY_DATA = 24, 20, 8, 5
EARLY_DATA = 42
"""An extension."""
AES_128_GCM_SHA256 = 0x1301
CLIENT_RANDOM = bytes(range(32))
LABELS = (
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
)


def expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of at most 32 bytes without a context."""
    label = b"tls13 " + label
    info = struct.pack("!HB", size, len(label)) + label + b"\0\1"
    return hmac.new(secret, info, hashlib.sha256).digest()[:size]


def seal(key: bytes, nonce: bytes, plain: bytes, head: bytes) -> bytes:
    """AES-GCM with its tag behind."""
    name = ctypes.util.find_library("crypto")
    assert name is not None
    crypto = ctypes.CDLL(name)
    for function in (crypto.EVP_CIPHER_CTX_new, crypto.EVP_aes_128_gcm):
        function.restype = ctypes.c_void_p
    context = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new())
    size, out, tag = ctypes.c_int(), ctypes.create_string_buffer(len(plain)), ctypes.create_string_buffer(16)
    done = [
        crypto.EVP_EncryptInit_ex(context, ctypes.c_void_p(crypto.EVP_aes_128_gcm()), None, key, nonce),
        crypto.EVP_EncryptUpdate(context, None, ctypes.byref(size), head, len(head)),
        crypto.EVP_EncryptUpdate(context, out, ctypes.byref(size), plain, len(plain)),
        crypto.EVP_EncryptFinal_ex(context, ctypes.create_string_buffer(16), ctypes.byref(size)),
        crypto.EVP_CIPHER_CTX_ctrl(context, 0x10, 16, tag),  # EVP_CTRL_AEAD_GET_TAG
    ]
    crypto.EVP_CIPHER_CTX_free(context)
    assert done == [1] * len(done)
    return out.raw + tag.raw


def message(kind: int, body: bytes) -> bytes:
    """A handshake message."""
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


class Writer:
    """What one side seals under one traffic secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.key, self.iv = expand(secret, b"key", 16), expand(secret, b"iv", 12)
        self.sent = 0

    def record(self, kind: int, content: bytes, padding: int = 0) -> bytes:
        plain = content + bytes([kind]) + bytes(padding)
        head = struct.pack("!BHH", APPLICATION_DATA, 0x0303, len(plain) + 16)
        nonce = bytes(a ^ b for a, b in zip(self.iv, self.sent.to_bytes(12, "big"), strict=True))
        self.sent += 1
        return head + seal(self.key, nonce, plain, head)

    def updated(self) -> Writer:
        """Behind a KeyUpdate."""
        return Writer(expand(self.secret, b"traffic upd", 32))


def writers(key_log: Path) -> list[Writer]:
    """Of client and server for the handshake, then of both for data; their secrets are in the log."""
    secrets = [hashlib.sha256(label.encode()).digest() for label in LABELS]
    lines = (
        f"{label} {CLIENT_RANDOM.hex()} {secret.hex()}\n"
        for label, secret in zip(LABELS, secrets, strict=True)
    )
    key_log.write_text("".join(lines))
    return [Writer(secret) for secret in secrets]
