"""The rules of the house as functions: each takes a tree and returns what breaks the rule, one line each.

The ladder itself is written in pyproject.toml (the import contract), highest floor first.
"""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
FACE = "oncron"


@dataclass(frozen=True)
class Ladder:
    """Which floor a room of the package is on, and which rooms of one floor may meet."""

    floors: dict[str, int]
    sociable: frozenset[int]

    @classmethod
    def of_project(cls, project: Path = REPOSITORY / "pyproject.toml") -> Ladder:
        contract = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
        floors: dict[str, int] = {}
        sociable: set[int] = set()
        for floor, layer in enumerate(reversed(contract["layers"])):
            floors |= dict.fromkeys(re.findall(r"\w+", layer), floor)
            if ":" in layer:
                sociable.add(floor)
        # The face lies above everything but the commands, which may use it as a user does.
        top = max(floors.values())
        floors = {room: floor + (floor == top) for room, floor in floors.items()}
        floors[FACE] = top
        return cls(floors, frozenset({top + 1 if floor == top else floor for floor in sociable}))

    def allows(self, importer: str, imported: str) -> bool:
        above, below = self.floors[importer], self.floors[imported]
        return above > below or importer == imported or (above == below and above in self.sociable)


@dataclass(frozen=True)
class Import:
    importer: str
    imported: str
    where: str


def modules(source: Path) -> dict[str, Path]:
    """Dotted name -> file, of every module of the package below `source`."""
    found: dict[str, Path] = {}
    for file in sorted((source / FACE).rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(source: Path) -> Iterator[Import]:
    """Every import inside the package, those under TYPE_CHECKING and inside functions too."""
    known = modules(source)
    for module, file in known.items():
        for node in ast.walk(_parse(file)):
            where = f"{file.relative_to(source)}:{getattr(node, 'lineno', 0)}"
            for name in _imported_names(node, module, is_package=file.name == "__init__.py"):
                if name == FACE or name.startswith(FACE + "."):
                    yield Import(module, _nearest(name, known), where)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else FACE


def climbs(source: Path, ladder: Ladder) -> list[str]:
    """Imports that go up or to a stranger on the same floor, and rooms that have no floor."""
    homeless = {room(module) for module in modules(source)} - set(ladder.floors)
    broken = [f"{name}: has no floor; give it one in pyproject.toml, [tool.importlinter]" for name in sorted(homeless)]
    for line in imports(source):
        rooms = room(line.importer), room(line.imported)
        if homeless.isdisjoint(rooms) and not ladder.allows(*rooms):
            broken.append(f"{line.where}: {line.importer} imports {line.imported}, which is not below it")
    return broken


def store_leaks(source: Path) -> list[str]:
    """Imports of a concrete store from elsewhere than `_app` and `stores.open`."""
    broken: list[str] = []
    for line in imports(source):
        store = _concrete_store(line.imported)
        if store is None or _concrete_store(line.importer) == store:
            continue
        if room(line.importer) != "_app" and line.importer != f"{FACE}.stores.open":
            broken.append(f"{line.where}: {line.importer} imports the concrete store {store}")
    return broken


CLOCKS = frozenset({
    "asyncio.sleep", "datetime.date.today", "datetime.datetime.now", "datetime.datetime.today",
    "datetime.datetime.utcnow", "time.clock_gettime", "time.clock_gettime_ns", "time.ctime", "time.gmtime",
    "time.localtime", "time.sleep", "time.time", "time.time_ns",
})  # fmt: skip
SLEEPS = frozenset({"asyncio.sleep", "time.sleep", "anyio.sleep", "trio.sleep"})


def clock_reads(source: Path) -> list[str]:
    """Reads of the wall clock, and sleeps, outside `_clock`. A loop's own time() is none of them."""
    files = [file for module, file in modules(source).items() if module != f"{FACE}._clock"]
    return [f"{where}: {name} belongs in _clock.py" for file in files for where, name in _uses(file, source, CLOCKS)]


def sleeps_in_tests(tests: Path) -> list[str]:
    """Sleeps outside tests/fault. `asyncio.sleep(0)` lets others run and waits for nothing."""
    broken: list[str] = []
    for file in sorted(tests.rglob("*.py")):
        if file.relative_to(tests).parts[0] != "fault":
            broken += [f"{where}: {name}; await the event, or move the clock" for where, name in _naps(file, tests)]
    return broken


_SQL = re.compile(
    r"\b(insert\s+into|delete\s+from|update\s+[\w.\"{}]+\s+set|select\b.+?\bfrom"
    r"|(create|alter|drop)\s+(or\s+replace\s+)?(unique\s+|temp\s+|unlogged\s+)?"
    r"(table|index|function|schema|type|view|trigger|sequence|database))\b|^\s*select\b",
    re.IGNORECASE | re.DOTALL,
)


def sql_in_python(source: Path) -> list[str]:
    """SQL statements in the Python of a store: they live in .sql files. An error's message may name one."""
    broken: list[str] = []
    for file in sorted((source / FACE / "stores").rglob("*.py")):
        tree = _parse(file)
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        prose |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in prose else None
            if isinstance(text, str) and _SQL.search(text):
                broken.append(f"{file.relative_to(source)}:{getattr(node, 'lineno', 0)}: {text.strip()[:60]!r} is SQL")
    return broken


_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|raise NotImplementedError)\b")


def unfinished(source: Path) -> list[str]:
    """Marks of work not done: a name whose feature is not there yet is absent."""
    return _lines_with(_UNFINISHED, text_files(source), source)


_ELSEWHERE = re.compile(
    "|".join(
        (r"\.\./" + "shared", r"(?<![\w.])/(work|root|home|Users)/", "/tmp/(venv|brief)", r"(pypi|npmjs)\.(org|com)")
    )
)


def foreign_paths(repository: Path) -> list[str]:
    """Mentions of one machine's paths, of folders outside the repository, of a registry's address."""
    return _lines_with(_ELSEWHERE, [f for f in text_files(repository) if f.name != Path(__file__).name], repository)


_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+")


def unpinned(constraints: Path) -> list[str]:
    """Lines of a constraints file that are more or less than a name and a version."""
    lines = constraints.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#") and not _PINNED.fullmatch(line)]


_TEXT = {"", ".cfg", ".css", ".html", ".ini", ".js", ".json", ".jsonl", ".lua", ".md", ".py", ".sql", ".toml", ".txt"}


def text_files(top: Path) -> list[Path]:
    """Files below `top` that people write, without what tools leave behind."""
    made = {".git", ".venv", "build", "dist", "node_modules"}
    found: list[Path] = []
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in made and not name.endswith(("_cache", "__", ".egg-info"))]
        folders[:] = [name for name in folders if name != ".hypothesis"]
        found += [Path(folder, name) for name in names if Path(name).suffix in _TEXT]
    return sorted(found)


def _lines_with(pattern: re.Pattern[str], files: list[Path], top: Path) -> list[str]:
    broken: list[str] = []
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if found := pattern.search(line):
                broken.append(f"{file.relative_to(top)}:{number}: {found.group()}")
    return broken


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def _imported_names(node: ast.AST, module: str, *, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = module.split(".") if is_package else module.split(".")[:-1]
        parts = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]
    return []


def _nearest(name: str, known: dict[str, Path]) -> str:
    """The module that `name` is, or is a part of; `from oncron import x` may mean either."""
    parts = name.split(".")
    while len(parts) > 1 and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)


def _concrete_store(module: str) -> str | None:
    parts = module.split(".")
    if parts[:2] != [FACE, "stores"] or len(parts) < 3 or parts[2] == "open" or parts[2].startswith("_"):
        return None
    return parts[2]


def _uses(file: Path, top: Path, wanted: frozenset[str]) -> list[tuple[str, str]]:
    """(place, full name) of every use of a wanted name, under whatever alias it was imported."""
    tree = _parse(file)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = _full_name(node, aliases)
            if name in wanted:
                found.append((f"{file.relative_to(top)}:{node.lineno}", name))
    return found


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = _full_name(node.value, aliases)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _naps(file: Path, top: Path) -> list[tuple[str, str]]:
    yields = {
        f"{file.relative_to(top)}:{call.lineno}"
        for call in ast.walk(_parse(file))
        if isinstance(call, ast.Call) and [ast.dump(a) for a in call.args] == [ast.dump(ast.Constant(0))]
    }
    return [(where, name) for where, name in _uses(file, top, SLEEPS) if where not in yields]
