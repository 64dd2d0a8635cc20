"""Keys, what they open, and that nothing passes the store unencrypted."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oncron import Oncron
from oncron._cipher import Keyring, as_shown, is_encrypted, key_of, keyring, readable
from oncron._encrypted import EncryptedStore
from oncron._store import ReadableStore
from oncron.errors import InvalidOption, WrongKey

KEY = bytes(range(32))


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        bytearray(KEY),
        KEY.hex(),
        KEY.hex().upper(),
        base64.b64encode(KEY).decode(),
        base64.urlsafe_b64encode(KEY).decode(),
        base64.urlsafe_b64encode(KEY).decode().rstrip("="),
        f"{KEY.hex()}\n",
    ],
)
def test_a_key_is_32_bytes_or_their_text(key: Any) -> None:
    shut = Keyring({"k": KEY}).encrypt("[1]", "here")
    assert Keyring({"k": key}).decrypt(shut, "here") == "[1]"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"encryption=\{\} has no key; leave it out"),
        (KEY, "encryption= is a mapping of names to keys"),
        ([("k", KEY)], "encryption= is a mapping of names to keys"),
        ({"k": KEY[:16]}, r"key 'k' is not 32 bytes .*secrets\.token_hex\(32\)"),
        ({"k": "secret"}, "key 'k' is not 32 bytes"),
        ({"k": None}, "key 'k' is not 32 bytes"),
        ({"": KEY}, "the key's name '' is stored with what it encrypts; give 1 to 64 letters"),
        ({"a:b": KEY}, "the key's name 'a:b' is stored"),
        ({7: KEY}, "the key's name 7 is stored"),
    ],
)
def test_what_is_no_key_is_refused_and_never_shown(make_app: Callable[..., Oncron], given: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says) as caught:
        make_app(encryption=given)
    assert "secret'" not in str(caught.value)
    assert KEY[:16].hex() not in str(caught.value)


def test_a_keyring_shows_the_names_of_its_keys_alone(make_app: Callable[..., Oncron]) -> None:
    assert repr(keyring({"new": KEY, "old": KEY.hex()})) == "<Keyring new, old>"
    assert KEY.hex() not in repr(vars(make_app(encryption={"k": KEY})))


@given(st.text(), st.text(st.characters(exclude_categories=["Cs"])))
def test_what_was_encrypted_comes_back_and_only_where_it_belongs(text: str, bound_to: str) -> None:
    keys = Keyring({"k": KEY})
    text = text.encode("utf-8", "replace").decode()
    shut = keys.encrypt(text, bound_to)
    assert is_encrypted(shut) == (not is_encrypted(text)) or shut == text
    assert key_of(shut) == "k"
    assert keys.decrypt(shut, bound_to) == text
    assert keys.decrypt(shut, bound_to + "!") == shut
    assert keys.encrypt(shut, bound_to) == shut, "twice is once"


def test_the_same_text_is_never_stored_alike() -> None:
    keys = Keyring({"k": KEY})
    assert keys.encrypt("1", "here") != keys.encrypt("1", "here")


@pytest.mark.parametrize("at", [20, -3])
def test_a_text_that_was_changed_does_not_open(at: int) -> None:
    keys = Keyring({"k": KEY})
    shut = keys.encrypt('{"amount":1}', "here")
    changed = shut[:at] + ("A" if shut[at] != "A" else "B") + shut[at + 1 :]
    assert keys.decrypt(changed, "here") == changed


def test_what_is_encrypted_is_said_to_be_so_instead_of_shown() -> None:
    shut = Keyring({"k": KEY}).encrypt("1", "here")
    assert (as_shown(shut), as_shown('"text"')) == ('"<encrypted>"', '"text"')
    assert readable("[1]", "the arguments") == "[1]"
    with pytest.raises(WrongKey, match=r"the arguments: encrypted with key 'k', which is not given here, or differs"):
        readable(shut, "the arguments")


CARRIERS = (
    "NewRun|RunRecord|Outcome|Report|Claimed|Fired|Pulse|Reaped|EnqueueResult|Change|Changed|Definition|"
    "ScheduleRecord|NewBatch|BatchRecord"
)


def test_every_step_of_the_store_that_carries_what_is_encrypted_is_known_to_the_layer_above_it() -> None:
    carrying = {
        name
        for protocol in ReadableStore.__mro__
        for name, method in vars(protocol).items()
        if callable(method) and re.search(rf"\b({CARRIERS})\b", str(getattr(method, "__annotations__", "")))
    }
    assert {"enqueue", "claim", "finish", "declare", "runs", "open_batch", "finish_in_async"} <= carrying
    assert carrying - set(vars(EncryptedStore)) == set()
