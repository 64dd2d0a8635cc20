"""Python source of schedules: it runs as it stands, and the formatter would leave it alone."""

from __future__ import annotations

import ast
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from oncron.cli import render
from oncron.cli.moving.moved import Found, Moved, NoEquivalent, TaskCode
from oncron.triggers import Trigger
from oncron.triggers.text import read

_WIDTH = 88
_TRIGGERS = ("cron", "daily", "every", "monthly", "once", "weekly")
_INDENT = "    "


@dataclass(frozen=True)
class Call:
    """`name(arguments, option=...)`"""

    name: str
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] | None = None

    def parts(self) -> list[tuple[str, Any]]:
        named = [(f"{name}=", value) for name, value in (self.options or {}).items()]
        return [*(("", value) for value in self.arguments), *named]


@dataclass(frozen=True)
class Verbatim:
    """Source as it is."""

    text: str


@dataclass(frozen=True)
class Extended:
    """`{**base, "key": value}`"""

    base: str
    values: Mapping[str, Any]


def program(found: Found) -> str:
    """A module that declares every schedule that came along."""
    tasks = {moved.task.name: moved.task for moved in found.moved}
    body = [text for task in tasks.values() if (text := task.source)]
    body += [_declaration(moved) for moved in found.moved]
    text = _joined(body)
    refused = [_comment(f"* {refused.name}: {refused.why}", after="  ") for refused in found.refused]
    return _joined(
        [
            _docstring(f"Schedules moved by `oncron import` from {found.origin}."),
            _imports(text, tasks.values()),
            "\n".join(_comment(f"* {note}", after="  ") for note in found.notes),
            "app = Oncron()  # on $ONCRON_STORE; or give a store's URL",
            *body,
            "\n".join(["# Not moved:", *refused]) if refused else "",
            'if __name__ == "__main__":\n    app.run()\n',
        ]
    )


def _joined(paragraphs: Iterable[str]) -> str:
    """With a blank line between them, and two around functions."""
    found = ""
    for paragraph in filter(None, paragraphs):
        last = found.rsplit("\n\n", 1)[-1]
        around = "\ndef " in f"\n{last}" or "\ndef " in f"\n{paragraph}"
        found += ("\n\n\n" if around else "\n\n") * bool(found) + paragraph
    return found


def _docstring(text: str) -> str:
    return '"""' + render.printable(text).replace("\\", "\\\\").replace('"""', "'''") + '"""'


def _declaration(moved: Moved) -> str:
    said = [_comment(f"It was {moved.was}.")] + [_comment(f"* {text}", after="  ") for text in moved.differs]
    options = {name: value for name, value in moved.options.items() if value is not None}
    return "\n".join(
        [
            *said,
            written(Call("app.add_schedule", [moved.name, trigger_source(moved.trigger), moved.task.name], options)),
        ]
    )


def _comment(text: str, after: str = "") -> str:
    wrapped = textwrap.wrap(
        render.printable(" ".join(text.split())),
        _WIDTH - 2,
        subsequent_indent=after,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(f"# {line}" for line in wrapped)


def _imports(text: str, tasks: Iterable[TaskCode]) -> str:
    """Of what the text uses, as isort has it."""
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    modules = {module for task in tasks for module in task.imports}
    standard = sorted(modules & {"os", "subprocess"})
    first = [f"import {module}" for module in standard]
    for module, names in (("datetime", ("UTC", "date", "datetime", "timedelta")), ("decimal", ("Decimal",))):
        if found := [name for name in names if name in used]:
            first.append(f"from {module} import {', '.join(found)}")
    third = [f"from oncron import {', '.join(['Oncron', *(kind for kind in _TRIGGERS if kind in used)])}"]
    own = [f"import {module}" for module in sorted(modules - set(standard))]
    return "\n\n".join("\n".join(block) for block in (first, third, own) if block)


def trigger_source(trigger: Trigger) -> Call:
    """The call that makes it."""
    call = read(str(trigger))
    options: dict[str, Any] = dict(call.options)
    arguments: list[Any] = list(call.arguments)
    if call.kind == "once":
        arguments = [datetime.fromisoformat(str(value)) for value in arguments]
    elif "anchor" in options:
        anchor = str(options["anchor"])
        options["anchor"] = datetime.fromisoformat(anchor) if call.kind == "every" else date.fromisoformat(anchor)
    if call.kind == "every":
        options = {k: float(v) if isinstance(v, Decimal) else v for k, v in options.items()}
    return Call(call.kind, arguments, options)


# --- values -----------------------------------------------------------------------------------


def refuse_unwritable(values: Mapping[str, Any]) -> None:
    """Raises NoEquivalent for an argument that neither JSON nor a line of source can hold."""
    for name, value in values.items():
        if not _is_plain(value):
            raise NoEquivalent(
                f"its argument {name!r} is a {type(value).__name__}; arguments are kept as JSON: give what it is made "
                "of, and build it in the task"
            )


def _is_plain(value: Any) -> bool:
    if value is None or isinstance(value, bool | int | str | datetime | date | timedelta | Decimal):
        return type(value) in {type(None), bool, int, str, datetime, date, timedelta, Decimal}
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in cast("Sequence[Any]", value))
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return all(isinstance(key, str) and _is_plain(item) for key, item in pairs)
    return False


def written(value: Any, indent: str = "", before: int = 0, after: int = 0) -> str:
    """A value's source: on one line if it fits beside what stands before and after it, else a line for each part."""
    flat, found = _flat(value), _parts(value)
    if len(indent) + before + len(flat) + after <= _WIDTH or not found:
        return flat
    opening, parts, closing = found
    inner = indent + _INDENT
    return "\n".join(
        [
            opening,
            *(f"{inner}{key}{written(part, inner, len(key), 1)}," for key, part in parts),
            f"{indent}{closing}",
        ]
    )


def _flat(value: Any) -> str:
    if not (found := _parts(value)):
        return _atom(value)
    opening, parts, closing = found
    return opening + ", ".join(f"{key}{_flat(part)}" for key, part in parts) + closing


def _parts(value: Any) -> tuple[str, list[tuple[str, Any]], str] | tuple[()]:
    """What stands around the parts, and the parts, each with what stands before it."""
    if isinstance(value, Call):
        return (f"{value.name}(", value.parts(), ")") if value.parts() else ()
    if isinstance(value, Extended):
        return "{", [("**", Verbatim(value.base)), *((f"{_text(k)}: ", v) for k, v in value.values.items())], "}"
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        return ("{", [(f"{_text(key)}: ", item) for key, item in pairs.items()], "}") if pairs else ()
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return ("[", [("", item) for item in items], "]") if items else ()
    return ()


def _atom(value: Any) -> str:
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Call):
        return f"{value.name}()"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    if isinstance(value, datetime):
        return _datetime(value)
    if isinstance(value, date):
        return f"date({value.year}, {value.month}, {value.day})"
    if isinstance(value, timedelta):
        return _timedelta(value)
    if isinstance(value, Decimal):
        return f'Decimal("{value}")'
    return repr(value)


def _text(text: str) -> str:
    """In double quotes, or in single ones where those need fewer backslashes."""
    shown = repr(text)
    if shown[0] == '"' or text.count('"') > text.count("'"):
        return shown
    return '"' + shown[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def _datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        return f"datetime.fromisoformat({_text(value.isoformat())})"
    at = value.astimezone(UTC)
    parts = [at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond]
    while len(parts) > 3 and not parts[-1]:
        parts.pop()
    return f"datetime({', '.join(map(str, parts))}, tzinfo=UTC)"


def _timedelta(value: timedelta) -> str:
    given = {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    return f"timedelta({', '.join(f'{name}={amount}' for name, amount in given.items() if amount)})"
