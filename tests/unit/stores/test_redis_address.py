"""From a URL to servers: what is understood, and what is said about the rest."""

from __future__ import annotations

import pytest

from oncron.errors import InvalidOption
from oncron.stores import open as open_stores
from oncron.stores.open import opener
from oncron.stores.redis import _address
from oncron.stores.redis._address import parsed


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "shown"),
    [
        ("redis://", "redis", [("localhost", 6379)], "redis://localhost:6379"),
        ("redis://db:7000/3", "redis", [("db", 7000)], "redis://db:7000/3"),
        ("redis://db?db=3", "redis", [("db", 6379)], "redis://db:6379/3"),
        ("rediss://me:secret@db", "redis", [("db", 6379)], "rediss://me@db:6379"),
        ("valkey://:secret@[::1]:7000", "redis", [("::1", 7000)], "valkey://[::1]:7000"),
        ("redis+unix:///run/r.sock?db=2", "unix", [], "redis+unix:///run/r.sock?db=2"),
        ("redis+sentinel://a,b:7/main/1", "sentinel", [("a", 26379), ("b", 7)], "redis+sentinel://a:26379,b:7/main/1"),
        ("redis+cluster://a,b:7", "cluster", [("a", 6379), ("b", 7)], "redis+cluster://a:6379,b:7"),
        ("redis://a?cluster=true", "cluster", [("a", 6379)], "redis://a:6379"),
    ],
)
def test_a_url_leads_to_servers_and_is_shown_without_its_password(
    url: str, kind: str, hosts: list[tuple[str, int]], shown: str
) -> None:
    address = parsed(url)

    assert (address.kind, list(address.hosts), address.shown) == (kind, hosts, shown)
    assert "secret" not in repr(address)
    assert opener(url).url == shown


def test_options_of_the_url_reach_the_driver_and_the_store() -> None:
    address = parsed("rediss://me:p%40ss@db?wait_replicas=2&wait_within=500&volatile=yes&ssl_cert_reqs=none")

    assert (address.options["username"], address.options["password"]) == ("me", "p@ss")
    assert (address.wait_replicas, address.wait_within, address.volatile) == (2, 500, True)
    assert (address.options["ssl"], address.options["ssl_cert_reqs"]) == (True, "none")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://db/first", "has no database 'first'; give a number"),
        ("redis://a,b", r"names several servers; write redis\+sentinel:// or redis\+cluster://"),
        ("redis+sentinel://a", r"names no service; write redis\+sentinel://host:26379/service/0"),
        ("redis+cluster://a/3", "a cluster has database 0 alone"),
        ("redis+sentinel://a/main?cluster=true", "cluster=true is not for sentinels"),
        ("redis+unix://run/r.sock", "names no socket"),
        ("redis://db?volatil=true", r"unknown option 'volatil'; did you mean volatile=\?"),
        ("redis://db?wait_replicas=many", "wait_replicas='many'; give a whole number"),
        ("redis://db?wait_replicas=-1", "wait_replicas='-1'; give 0 to 64"),
        ("redis://db?volatile=maybe", "volatile='maybe'; give true or false"),
        ("redis://db?ssl_cert_reqs=none", "needs TLS: write rediss://"),
        ("redis://db?sentinel_password=x", r"for redis\+sentinel:// alone"),
        ("redis://me:pa/ss@db", "special characters percent-encoded"),
        ("redis+sentinal://a/main", r"did you mean redis\+sentinel://\?"),
    ],
)
def test_a_url_that_names_no_place_is_refused_with_what_to_write(url: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=says) as refused:
        opener(url)
    assert "pa/ss" not in str(refused.value)


def test_the_table_of_schemes_knows_those_of_the_store() -> None:
    assert open_stores._REDIS == _address.SCHEMES
