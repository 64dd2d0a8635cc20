"""Which file an address names, and which names a namespace may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncron.errors import InvalidOption
from oncron.stores.sqlite import SQLiteStore


def test_a_relative_address_is_a_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    store = SQLiteStore("sqlite:///shop.db")

    assert store.path == tmp_path / "shop.db"


def test_the_file_stays_the_same_when_the_process_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("sqlite:///shop.db")

    monkeypatch.chdir("/")

    assert store.path == tmp_path / "shop.db"


def test_four_slashes_begin_an_absolute_path() -> None:
    assert SQLiteStore("sqlite:////var/lib/shop.db").path == Path("/var/lib/shop.db")


def test_the_url_of_a_store_names_the_same_file_again(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "shop.db")

    assert SQLiteStore(store.url).path == store.path


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("sqlite://shop.db", "four slashes"),
        ("sqlite:shop.db", "four slashes"),
        ("sqlite:///", "names no file"),
        ("", "names no file"),
        (":memory:", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///shop.db?mode=ro", "takes no options"),
    ],
)
def test_an_address_that_names_no_file_is_refused_with_the_mend(address: str, what: str) -> None:
    with pytest.raises(InvalidOption, match=what):
        SQLiteStore(address)


@pytest.mark.parametrize("namespace", ["", "Shop", "1shop", "a b", "x" * 41, 'a"; drop table b; --', "straße"])
def test_a_namespace_that_is_no_table_name_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidOption, match="namespace"):
        SQLiteStore("shop.db", namespace=namespace)
