"""The reference says what the code says: limits, events, errors, signatures, options."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import click

import oncron
from oncron import Oncron, _defaults, _eventlog, _events, _options, backoff, errors, triggers
from oncron.cli import cli
from tests.docs.snippets import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "reference"

_UNITS = {
    "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "KiB": 1024, "MiB": 1024 * 1024,
}  # fmt: skip
_NO_LIMITS = {"SECOND", "DAY"}


def rows(page: Path) -> list[list[str]]:
    """The cells of every table row, without heads."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not line.startswith("|--") and not following.startswith("|--")
    ]


def value(text: str) -> int:
    """`10 s`, `256 KiB`, `10 000`."""
    digits, unit = re.fullmatch(r"([\d ]+?) ?([a-zA-Z]*)", text).groups()  # type: ignore[union-attr]
    return int(digits.replace(" ", "")) * (_UNITS[unit] if unit else 1)


def test_the_table_of_limits_is_that_of_the_code() -> None:
    said = {name.strip("`"): value(cell) for _, cell, _, name in rows(REFERENCE / "limits.md")}
    code = {name: found for name, found in vars(_defaults).items() if name.isupper() and name not in _NO_LIMITS}
    assert said == code


def test_the_table_of_events_has_each_with_its_log_level() -> None:
    said = {cells[0].strip("`"): cells[-1] for cells in rows(REFERENCE / "events.md") if "." in cells[0]}
    assert set(said) == set(_events.NAMES)
    code = {name: logging.getLevelName(level) for name, level in _eventlog._LEVELS.items()}
    assert {name: level for name, level in said.items() if name in code} == code


def test_the_table_of_errors_is_the_tree() -> None:
    said = [cells[0].strip("`") for cells in rows(REFERENCE / "errors.md") if len(cells) == 4]
    code = [
        name for name, found in vars(errors).items() if inspect.isclass(found) and found.__module__ == errors.__name__
    ]
    assert said == code


def under(page: str, title: str) -> str:
    """The text below a title, to the next one of its kind."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def option_names(title: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]*`) \|", under("options.md", title), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_tables_of_options_are_complete() -> None:
    assert option_names("Of a task") == _options.TASK
    assert option_names("Of a schedule") == _options.TIMING | _options.RUN | {"name"}
    assert option_names("Of one call") == _options.CALL
    assert option_names("Of the app") == set(inspect.signature(Oncron).parameters)


def signature(name: str, fn: Callable[..., Any], *, skip: int = 0) -> str:
    """As the page writes it: without annotations, and without what exists to be refused."""
    parameters = [
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else Written(p.default))
        for p in list(inspect.signature(fn).parameters.values())[skip:]
        if p.name != "refused"
    ]
    return f"{name}{inspect.Signature(parameters)}"


class Written:
    """A default, as one would write it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if isinstance(self.value, datetime):
            return "EPOCH" if self.value == datetime(1970, 1, 1, tzinfo=UTC) else repr(self.value)
        if isinstance(self.value, timedelta):
            return f"timedelta(days={self.value.days})"
        if isinstance(self.value, date):
            return f"date({self.value.year}, {self.value.month}, {self.value.day})"
        return repr(self.value).replace("'", '"')


FOR_THE_ENGINE = {"layers", "new_run", "period_us", "first_us", "next_after_us", "count_between_us", "latest_in_us"}
"""Without an underscore, but in integer microseconds, or in records."""


def test_every_public_name_is_written_down_with_its_signature() -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    expected = [f"`{name}`" for name in (*oncron.__all__, *triggers.__all__)]
    expected.append(f"`{signature('Oncron', Oncron)}`")
    kinds = ("cron", "every", "daily", "weekly", "monthly", "once", "RetryIn", "GiveUp", "Skip")
    expected += [f"`{signature(name, getattr(oncron, name))}`" for name in kinds]
    expected += [f"`{signature(name, getattr(backoff, name))}`" for name in ("exponential", "polynomial", "fixed")]
    for owner in (Oncron, oncron.Task, oncron.Run, oncron.RunContext, oncron.Schedule, oncron.Trigger):
        for name, member in inspect.getmembers(owner):
            if name.startswith("_") or name in FOR_THE_ENGINE:
                continue
            if inspect.isfunction(member):
                waits = "await " if inspect.iscoroutinefunction(member) else ""
                expected.append(f"`{waits}{signature(name, member, skip=1)}`")
            else:
                expected.append(f"`{name}`")
    assert [name for name in expected if name not in page] == []


def commands(group: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(group, click.Group):
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield f"{path} {name}".strip(), command
        yield from commands(command, f"{path} {name}".strip())


def test_every_command_and_every_option_of_one_is_written_down() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    missing: list[str] = []
    for path, command in commands(cli):
        first, _, rest = path.partition(" ")
        if f"oncron {first}" not in page or not all(re.search(rf"\b{word}\b", page) for word in rest.split()):
            missing.append(path)
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        missing += [f"{path} {each.opts[0]}" for each in options if not any(name in page for name in each.opts)]
    assert missing == []
