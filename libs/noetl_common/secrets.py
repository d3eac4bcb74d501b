"""Envelope encryption of credentials: each record has a key of its own, wrapped by the cluster's key.

A sealed record opens only under its own name: the name is authenticated with both ciphertexts, so a row copied
or renamed in the database does not open. The cluster's key never stands in the database.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noetl_common.errors import ConfigError, SealBroken
from noetl_common.log import redact

KEY_BYTES = 32
NONCE_BYTES = 12
# A key with fewer different bytes was typed, not drawn; 32 random bytes have about 30.
KEY_BYTES_DISTINCT_MIN = 16
VARIABLE = "NOETL_ENCRYPTION_KEY"


class Sealed(msgspec.Struct, frozen=True):
    """A record as the database keeps it."""

    data_encrypted: bytes
    key_wrapped: bytes
    key_id: str


class Vault:
    """Seals and opens records under one key; `older` keys, by their id, still open what they sealed."""

    def __init__(self, key: bytes, key_id: str = "", *, older: Mapping[str, bytes] | None = None) -> None:
        if len(key) != KEY_BYTES:
            raise ConfigError(f"{VARIABLE}: expected a key of {KEY_BYTES} bytes, found {len(key)}")
        self.key_id = key_id or key_id_of(key)
        self._keys = {**(older or {}), self.key_id: key}

    def seal(self, name: str, data: dict[str, Any]) -> Sealed:
        """Return `data` encrypted under a fresh key, which is wrapped by the cluster's."""
        record_key = AESGCM.generate_key(bit_length=KEY_BYTES * 8)
        bound = _bound_to(name, self.key_id)
        return Sealed(
            data_encrypted=_encrypt(record_key, msgspec.json.encode(data), bound),
            key_wrapped=_encrypt(self._keys[self.key_id], record_key, bound),
            key_id=self.key_id,
        )

    def open(self, name: str, sealed: Sealed) -> dict[str, Any]:
        """Return the data of a sealed record.

        Errors: SealBroken when the key is unknown, or name, wrapped key or data are not what was sealed.
        """
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise SealBroken(f"credential {name!r}: sealed under key {sealed.key_id!r}, which is not configured")
        bound = _bound_to(name, sealed.key_id)
        try:
            record_key = _decrypt(key, sealed.key_wrapped, bound)
            text = _decrypt(record_key, sealed.data_encrypted, bound)
        except (InvalidTag, ValueError) as exc:
            raise SealBroken(f"credential {name!r}: the record is not what was sealed under this name") from exc
        return msgspec.json.decode(text, type=dict[str, Any])

    def rewrap(self, name: str, sealed: Sealed) -> Sealed:
        """Return the record sealed anew under the present key, for a rotation."""
        return self.seal(name, self.open(name, sealed))


def generate_key() -> str:
    """Return a new key as it is written into NOETL_ENCRYPTION_KEY: base64 of 32 random bytes."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def load_key(text: str) -> bytes:
    """Return the key written in `text` (base64, 32 bytes). Its text is never shown in a log again.

    Errors: ConfigError when it is missing, not base64, of another length, or plainly not random.
    """
    redact(text)
    hint = "make one with: openssl rand -base64 32"
    if not text:
        raise ConfigError(f"{VARIABLE}: expected base64 of {KEY_BYTES} bytes, found nothing ({hint})")
    try:
        key = base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ConfigError(f"{VARIABLE}: expected base64 of {KEY_BYTES} bytes, found other text ({hint})") from exc
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{VARIABLE}: expected {KEY_BYTES} bytes, found {len(key)} ({hint})")
    if len(set(key)) < KEY_BYTES_DISTINCT_MIN:
        raise ConfigError(f"{VARIABLE}: expected a random key, found a default or typed one ({hint})")
    return key


def key_id_of(key: bytes) -> str:
    """Return the short public name of a key."""
    return sha256(b"noetl/key-id/v1|" + key).hexdigest()[:16]


def _bound_to(name: str, key_id: str) -> bytes:
    return f"noetl/cred/v1|{len(name)}|{name}|{key_id}".encode()


def _encrypt(key: bytes, text: bytes, bound: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, text, bound)


def _decrypt(key: bytes, sealed: bytes, bound: bytes) -> bytes:
    return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
