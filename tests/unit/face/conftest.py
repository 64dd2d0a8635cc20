"""`make_app(...)`: an app on a memory store of its own, whose engine ends with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncron import Oncron


@pytest.fixture
def make_app() -> Iterator[Callable[..., Oncron]]:
    made: list[Oncron] = []

    def make(store: str = "memory://", **options: Any) -> Oncron:
        made.append(Oncron(store, **options))
        return made[-1]

    yield make
    for app in made:
        app._life.at_exit()


@pytest.fixture
def app(make_app: Callable[..., Oncron]) -> Oncron:
    return make_app()
