"""How triggers are written down: `kind("text", [1, 2], option="value")`.

Written and read here alone, without `eval`: texts, whole and decimal numbers, lists of
these, and named options. A text that this module wrote, it reads back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from oncron.errors import InvalidTrigger

Value = str | bool | int | Decimal | list["Value"]

LONGEST_TEXT = 65_536

_ATOM = r'"[^"\\]*"|-?\d{1,18}(?:\.\d{1,18})?|True|False'
_ARGUMENT = re.compile(rf"(?:([a-z]{{1,16}})=)?(?:({_ATOM})|\[((?:{_ATOM})(?:, (?:{_ATOM}))*)\])(, |\)\Z)", re.ASCII)
_ATOMS = re.compile(_ATOM, re.ASCII)
_HEAD = re.compile(r"([a-z]{1,16})\(")


@dataclass(frozen=True, slots=True)
class Call:
    """A trigger's text taken apart."""

    kind: str
    arguments: tuple[Value, ...]
    options: Mapping[str, Value]


def write(kind: str, *arguments: Value, **options: Value | None) -> str:
    """The text of a call; options that are None are left out."""
    parts = [_write(value) for value in arguments]
    parts += [f"{key}={_write(value)}" for key, value in options.items() if value is not None]
    return f"{kind}({', '.join(parts)})"


def _write(value: Value) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(_write(item) for item in value)}]"
    return str(value)


def one_or_list(values: Sequence[Value]) -> Value:
    """A single value as itself, several as a list."""
    return values[0] if len(values) == 1 else list(values)


def read(text: object) -> Call:
    """The call of a text. Raises InvalidTrigger for anything that `write` does not write."""
    if not isinstance(text, str):
        raise InvalidTrigger("a trigger's text is a str", expression=text, mend="pass str(trigger)")
    if len(text) > LONGEST_TEXT:
        raise InvalidTrigger(f"longer than {LONGEST_TEXT} characters", expression=text)
    head = _HEAD.match(text)
    if head is None:
        raise _refused(text, 0)
    arguments: list[Value] = []
    options: dict[str, Value] = {}
    at = head.end()
    while at < len(text):
        match = _ARGUMENT.match(text, at)
        if match is None:
            raise _refused(text, at)
        key, atom, items, _ = match.groups()
        value = _atom(atom) if atom is not None else [_atom(item) for item in _ATOMS.findall(items)]
        if key is None and not options:
            arguments.append(value)
        elif key is not None and key not in options:
            options[key] = value
        else:
            raise _refused(text, at)
        at = match.end()
    if not text.endswith(")"):
        raise _refused(text, at)
    return Call(head[1], tuple(arguments), options)


def _atom(text: str) -> Value:
    if text[0] == '"':
        return text[1:-1]
    if text[0] in "TF":
        return text == "True"
    return Decimal(text) if "." in text else int(text)


def _refused(text: str, at: int) -> InvalidTrigger:
    return InvalidTrigger(
        f"not the text of a trigger from character {at} on",
        expression=text,
        mend='write kind(...) as str(trigger) does, cron("0 3 * * *") for instance',
    )
