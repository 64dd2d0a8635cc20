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

_TOKEN = re.compile(
    r'[ ]*(?:(?P<string>"[^"\\]*")|(?P<number>-?\d{1,18}(?:\.\d{1,18})?)|(?P<word>True|False)|(?P<key>[a-z_]{1,32})=|(?P<mark>[\[\](),]))'
)
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
    if head is None or not text.endswith(")"):
        raise InvalidTrigger(
            "not the text of a trigger", expression=text, mend='write kind(...), cron("0 3 * * *") for instance'
        )
    return _Reader(text, head.end()).call(head[1])


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self._text, self._at = text, at

    def call(self, kind: str) -> Call:
        arguments: list[Value] = []
        options: dict[str, Value] = {}
        closed = self._peek() == ")"
        while not closed:
            key, value = self._argument()
            if key is None and not options:
                arguments.append(value)
            elif key is not None and key not in options:
                options[key] = value
            else:
                raise self._refused("an option twice, or a plain argument after an option")
            closed = self._mark(",", ")") == ")"
        else:
            if not arguments and not options:
                self._mark(")")
        if self._at != len(self._text):
            raise self._refused("text after the closing parenthesis")
        return Call(kind, tuple(arguments), options)

    def _argument(self) -> tuple[str | None, Value]:
        match = self._token()
        key = match["key"]
        if key is not None:
            match = self._token()
        return key, self._value(match, nested=False)

    def _value(self, match: re.Match[str], *, nested: bool) -> Value:
        if match["string"] is not None:
            return match["string"][1:-1]
        if match["number"] is not None:
            return Decimal(match["number"]) if "." in match["number"] else int(match["number"])
        if match["word"] is not None:
            return match["word"] == "True"
        if match["mark"] == "[" and not nested:
            items: list[Value] = []
            while True:
                items.append(self._value(self._token(), nested=True))
                if self._mark(",", "]") == "]":
                    return items
        raise self._refused("a value is a text in double quotes, a number, or a list of these")

    def _mark(self, *marks: str) -> str:
        match = self._token()
        if match["mark"] not in marks:
            raise self._refused(f"expected {' or '.join(marks)}")
        return match["mark"]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _token(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._refused("neither text, number, list nor option")
        self._at = match.end()
        return match

    def _refused(self, reason: str) -> InvalidTrigger:
        return InvalidTrigger(
            f"at character {self._at}: {reason}",
            expression=self._text,
            mend='write kind(...), cron("0 3 * * *") for instance',
        )
