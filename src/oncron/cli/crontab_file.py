"""A crontab, read as Debian's cron reads it: environment, schedules, commands, what `%` stands for.

A comment `# oncron: name=backup timeout=30min` gives the line after it a name and options.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from oncron import cron
from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger
from oncron.triggers.zones import load_zone

OPTIONS = ("name", "timeout", "overlap", "retries", "missed", "jitter")
"""What a comment may give the line after it."""

_SETTING = re.compile(r"""("[^"]*"|'[^']*'|[^\s"'=][^\s=]*)[ \t]*=[ \t]*(.*)""", re.DOTALL)
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)
_ONCRON = re.compile(r"#+[ \t]*oncron:(.*)")
_PROGRAM = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")


@dataclass(frozen=True)
class Entry:
    """A line that runs something."""

    number: int
    name: str
    trigger: Trigger
    """With its zone, if one is known for it."""
    command: str
    """As the shell gets it."""
    stdin: str
    environment: Mapping[str, str]
    """The file's settings above the line."""
    user: str | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Remark:
    """Something to say of a line."""

    number: int
    text: str


@dataclass(frozen=True)
class Crontab:
    entries: list[Entry]
    broken: list[Remark]
    """Lines that mean nothing, each with the mend."""
    notices: list[Remark]
    """What is not as under cron."""
    zoneless: list[int]
    """Numbers of entries for which no zone is known."""


class _Broken(Exception):
    pass


def read(text: str, *, timezone: str | None = None, system: bool = False) -> Crontab:
    """The whole file: every line that is broken is found. `timezone` is for lines above which no CRON_TZ stands; with
    `system` the sixth column is a user, as in /etc/crontab."""
    return _Reader(timezone, system).read(text)


class _Reader:
    def __init__(self, timezone: str | None, system: bool) -> None:
        self._default_zone, self._system = timezone, system
        self._zone = timezone
        self._environment: dict[str, str] = {}
        self._options: dict[str, str] | None = None
        self._options_at = 0
        self._found = Crontab([], [], [], [])
        self._names: dict[str, int] = {}
        self._noted: set[str] = set()

    def read(self, text: str) -> Crontab:
        for number, line in _lines(text):
            try:
                self._line(number, line)
            except _Broken as broken:
                self._found.broken.append(Remark(number, str(broken)))
        if self._options is not None:
            self._found.broken.append(Remark(self._options_at, "no line follows to which these options belong"))
        return self._found

    def _line(self, number: int, line: str) -> None:
        if line.startswith("#"):
            if (told := _ONCRON.fullmatch(line)) is not None:
                self._options, self._options_at = _options(told[1]), number
            return
        if line.endswith("\r"):
            raise _Broken("it ends with a carriage return, which the shell would take for a part of the command; save "
                          "the file with Unix line ends")  # fmt: skip
        if "\0" in line:
            raise _Broken("it holds a NUL, which no command can; leave it out")
        if (setting := _SETTING.fullmatch(line)) is not None:
            self._set(number, _unquoted(setting[1]), _value(setting[1], setting[2]))
        else:
            options, self._options = self._options or {}, None
            self._entry(number, line, options)

    # --- settings ---------------------------------------------------------------------

    def _set(self, number: int, name: str, value: str) -> None:
        self._environment[name] = value
        if name == "CRON_TZ":
            try:
                self._zone = load_zone(value).name if value else self._default_zone
            except InvalidTrigger as error:
                self._zone = "UTC"  # said once: the lines below it are not without a zone
                raise _Broken(f"CRON_TZ: {error}") from None
        elif name in _MAIL:
            self._note(number, name, f"{name} is ignored: what a command prints is kept with its run (`oncron runs`)")
        elif name == "RANDOM_DELAY":
            self._note(number, name, "RANDOM_DELAY is ignored: write `# oncron: jitter=5min` above a line")
        elif name == "TZ":
            self._note(number, name, "TZ is the command's zone, not the schedule's; CRON_TZ is")

    def _note(self, number: int, about: str, text: str) -> None:
        if about not in self._noted:
            self._noted.add(about)
            self._found.notices.append(Remark(number, text))

    # --- entries ----------------------------------------------------------------------

    def _entry(self, number: int, line: str, options: dict[str, str]) -> None:
        count = 1 if line.startswith("@") else 5
        parts = re.split(r"[ \t]+", line, maxsplit=count + self._system)
        schedule, rest = " ".join(parts[:count]), parts[count:]
        if schedule.lower() == "@reboot":
            raise _Broken("@reboot is refused: the start of one host is no instant that all hosts share; start the "
                          "command with the host, or give it a time")  # fmt: skip
        trigger = self._trigger(schedule)
        if self._system:
            if len(rest) < 2:
                raise _Broken("a user and a command are needed after the schedule (--system)")
        elif not rest:
            raise _Broken("no command after the schedule")
        command, stdin = split_percent(rest[-1])
        if not command.strip():
            raise _Broken("no command before the first %")
        user = rest[0] if self._system else None
        if self._zone is None:
            self._found.zoneless.append(number)
        name = self._name(options.pop("name", None), schedule, rest[-1])
        settings = dict(self._environment)
        self._found.entries.append(Entry(number, name, trigger, command, stdin, settings, user, options))

    def _trigger(self, schedule: str) -> Trigger:
        try:
            return cron(schedule, timezone=self._zone)
        except InvalidTrigger as error:
            if schedule.lower().startswith("@every"):
                raise _Broken(
                    "@every is refused: write */5 * * * *, or a command of its own, `oncron exec --every`"
                ) from None
            where = f"{error.field}: " if error.field else ""
            raise _Broken(f"{where}{error.reason}" + (f"; {error.mend}" if error.mend else "")) from None

    def _name(self, given: str | None, schedule: str, command: str) -> str:
        """The given one, or one of the text alone: the same on every host, wherever in the file the line stands."""
        if given is not None:
            if given in self._names:
                raise _Broken(f"the name {given!r} is there twice; give one of the lines another name=")
            self._names[given] = 1
            return given
        digest = hashlib.sha256(f"{schedule}\0{command}".encode(errors="surrogateescape")).hexdigest()[:8]
        name = f"{_program(command)}-{digest}"
        self._names[name] = self._names.get(name, 0) + 1
        return name if self._names[name] == 1 else f"{name}-{self._names[name]}"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Those that say something, with their numbers, without blanks around them."""
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip(" \t"):
            yield number, stripped


def _options(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _Broken(f"the options after `oncron:` cannot be read: {error}") from None
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in OPTIONS:
            raise _Broken(f"{word!r} is no option; `# oncron:` takes {', '.join(f'{each}=' for each in OPTIONS)}")
        if name in found:
            raise _Broken(f"{name}= is there twice")
        found[name] = value
    return found


def _unquoted(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    return text if quoted is None else quoted[2]


def _value(name: str, text: str) -> str:
    text = text.rstrip(" \t")
    if text == "":
        raise _Broken(f'{name}= has no value; write {name}="" for an empty one')
    if text[0] in "\"'" and (_QUOTED.fullmatch(text) is None or text[0] in text[1:-1]):
        raise _Broken(f"the quote after {name}= is not closed at the end of the line")
    return _unquoted(text)


def split_percent(text: str) -> tuple[str, str]:
    """The command, and what it finds at its standard input: `%` ends the command, each further one is a newline. A
    backslash keeps a `%`; in the command, it also keeps a backslash."""
    command: list[str] = []
    at = 0
    while at < len(text) and text[at] != "%":
        if text[at] == "\\" and text[at + 1 : at + 2] in ("%", "\\"):
            at += 1
        command.append(text[at])
        at += 1
    given = text[at + 1 :]
    if not given:
        return "".join(command), ""
    stdin = re.sub(r"\\?%", lambda found: "\n" if found[0] == "%" else "%", given)
    return "".join(command), stdin if stdin.endswith("\n") else stdin + "\n"


def _program(command: str) -> str:
    """What a reader knows the line by: the program's name, or its beginning."""
    words = [word for word in command.split() if "=" not in word]
    found = _PROGRAM.search(words[0].rsplit("/", 1)[-1]) if words else None
    return "cron" if found is None else found[0]
