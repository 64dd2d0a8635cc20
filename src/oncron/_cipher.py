"""Texts that are stored encrypted: AES-256-GCM, under one of several named keys.

An encrypted text is itself a JSON string that names its key, so that stores, and whoever has no key, handle it like
any other. It is bound to what it belongs to (associated data): moved elsewhere, it does not open.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from typing import Any

from oncron.errors import InvalidOption, WrongKey

_MARK = '"$encrypted:1:'
_FORM = re.compile(r'"\$encrypted:1:([\w.-]+):([A-Za-z0-9_-]{38,})"')
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_KEY_BYTES = 32
_NONCE_BYTES = 12
_MAKE_ONE = 'python -c "import secrets; print(secrets.token_hex(32))" makes one'


def is_encrypted(text: str | None) -> bool:
    return text is not None and text.startswith(_MARK) and _FORM.fullmatch(text) is not None


def key_of(text: str | None) -> str | None:
    """The name of the key that an encrypted text needs; None for a plain one."""
    found = None if text is None or not text.startswith(_MARK) else _FORM.fullmatch(text)
    return None if found is None else found[1]


def as_shown(text: str) -> str:
    """The JSON text as faces show it."""
    return '"<encrypted>"' if is_encrypted(text) else text


def readable(text: str, what: str) -> str:
    """The text, if it is not encrypted (any more). Raises WrongKey."""
    key = key_of(text)
    if key is not None:
        raise WrongKey(f"{what}: encrypted with key {key!r}, which is not given here, or differs; {mend(key)}")
    return text


def mend(key: str) -> str:
    return f"add it: Oncron(..., encryption={{..., {key!r}: ...}})"


class Keyring:
    """Keys by name. The first one encrypts; all of them decrypt."""

    def __init__(self, keys: Mapping[str, bytes | str]) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise InvalidOption(
                "encryption= needs the package cryptography: pip install 'oncron[encryption]'"
            ) from None
        self._invalid = InvalidTag
        self._ciphers = {_name(name): AESGCM(_key(name, key)) for name, key in keys.items()}
        self._newest = next(iter(self._ciphers))

    def encrypt(self, text: str, bound_to: str) -> str:
        """Under the newest key. An encrypted text stays as it is."""
        if is_encrypted(text):
            return text
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._newest].encrypt(nonce, text.encode(), bound_to.encode())
        return f'{_MARK}{self._newest}:{base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")}"'

    def decrypt(self, text: str, bound_to: str) -> str:
        """A plain text stays as it is; so does one that no key here opens."""
        found = _FORM.fullmatch(text) if text.startswith(_MARK) else None
        cipher = None if found is None else self._ciphers.get(found[1])
        if found is None or cipher is None:
            return text
        try:
            raw = base64.urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
            return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], bound_to.encode()).decode()
        except (self._invalid, binascii.Error, UnicodeDecodeError):
            return text

    def __repr__(self) -> str:
        return f"<Keyring {', '.join(self._ciphers)}>"


def keyring(encryption: Any) -> Keyring | None:
    """`Oncron(encryption=...)`. Raises InvalidOption, which never shows a key."""
    if encryption is None:
        return None
    if not isinstance(encryption, Mapping):
        raise InvalidOption(
            "encryption= is a mapping of names to keys, the one that encrypts first: "
            "encryption={'2026-01': os.environ['ONCRON_KEY']}"
        )
    if not encryption:
        raise InvalidOption("encryption={} has no key; leave it out to store arguments as they are")
    return Keyring(encryption)  # pyright: ignore[reportUnknownArgumentType] - each is checked there


def _name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(
            f"encryption=: the key's name {name!r} is stored with what it encrypts; give 1 to 64 letters, digits, "
            "'_', '.' and '-'"
        )
    return name


def _key(name: Any, key: Any) -> bytes:
    if isinstance(key, str):
        key = _decoded(key.strip())
    if not isinstance(key, bytes | bytearray) or len(key) != _KEY_BYTES:
        raise InvalidOption(
            f"encryption=: key {name!r} is not {_KEY_BYTES} bytes (or their text in hex or base64); {_MAKE_ONE}"
        )
    return bytes(key)


def _decoded(text: str) -> bytes | None:
    try:
        if re.fullmatch(r"[0-9a-fA-F]{64}", text):
            return bytes.fromhex(text)
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
