"""The pytest plugin: fixtures that put an app on a ManualClock. Nothing of oncron is loaded until one is used."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from oncron._app import Oncron
    from oncron.testing import ManualClock

_OPTIONS = ("start", "eager", "patience", "lifespan")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("oncron_app", "module:attribute of the app that the fixture oncron_app hands out", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "oncron(start=..., eager=..., patience=..., lifespan=...): options of the ManualClock of oncron_app"
    )


@pytest.fixture
def oncron_clock(request: pytest.FixtureRequest) -> Generator[ManualClock]:
    """The ManualClock of `oncron_app`. Options come from the marker `oncron`."""
    from oncron.testing import ManualClock

    marker: Any = request.node.get_closest_marker("oncron")  # pyright: ignore[reportUnknownMemberType]
    options: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    if marker is not None and (marker.args or options.keys() - set(_OPTIONS)):
        raise pytest.UsageError(f"@pytest.mark.oncron takes {', '.join(f'{name}=' for name in _OPTIONS)}: {marker}")
    with ManualClock(_app(request.config), **options) as clock:
        yield clock


@pytest.fixture
def oncron_app(oncron_clock: ManualClock) -> Oncron:
    """The app that the ini option `oncron_app` names (a fresh one without it), running on a ManualClock: an empty
    memory store, and time that `oncron_clock` moves. After the test it is as before."""
    return oncron_clock.app


def _app(config: pytest.Config) -> Oncron:
    from oncron._app import Oncron

    named: str = config.getini("oncron_app")
    if not named:
        return Oncron("memory://")
    module, _, attribute = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if attribute else None
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"ini option oncron_app = {named}: {error}") from error
    if not isinstance(found, Oncron):
        raise pytest.UsageError(f"ini option oncron_app = {named}: no Oncron there; write module:attribute of the app")
    return found
