"""The files around the code keep their promises: make, constraints, packaging, CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from tests.house import rules

MAKEFILE = rules.REPOSITORY / "Makefile"
PROJECT = tomllib.loads((rules.REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = ["help", "setup", "packages", "check", "test", "demo", "contract", "sim", "fault", "docs", "bench", "clean"]


def make(*arguments: str) -> str:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=rules.REPOSITORY, env=bare, check=True, capture_output=True, text=True).stdout


def test_make_help_explains_each_target() -> None:
    explained = dict(re.findall(r"^make (\w+) +(\S.*)$", make("help"), re.MULTILINE))
    assert list(explained) == TARGETS
    assert all(len(text.split()) > 2 for text in explained.values())
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    assert phony.group(1).split() == TARGETS


def test_plain_make_is_help() -> None:
    assert make() == make("help")


def test_make_demo_hands_its_variables_to_the_command() -> None:
    said = make("--dry-run", "demo", "STORE=postgresql://db/shop", "REPLICAS=5", "SECONDS=9")
    assert "oncron demo --store 'postgresql://db/shop' --replicas 5 \\\n" in said
    assert "--seconds 9" in said
    assert "--store" not in make("--dry-run", "demo")


def test_ci_runs_the_test_command_of_the_readme(tmp_path: Path) -> None:
    fake = tmp_path / "make"
    fake.write_text('#!/bin/sh\necho "CI=$CI in $PWD: make $*"\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [rules.REPOSITORY / ".ci" / "run"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    said = [f"CI=true in {rules.REPOSITORY}: make {target}" for target in ("packages", "test")]
    assert done.stdout.splitlines() == said


def test_constraints_hold_names_and_versions_only() -> None:
    assert rules.unpinned(rules.REPOSITORY / "constraints.txt") == []


@pytest.mark.parametrize(
    "line", ["rich>=15", "rich", "-e .", "rich @ https://example.org/rich.whl", "rich==15 --hash=x"]
)
def test_anything_else_in_constraints_is_caught(tmp_path: Path, line: str) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text(f"# why\npsycopg-binary==3.2.1\n{line}\n")
    assert rules.unpinned(file) == [line]


def test_every_dependency_is_pinned() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    lines = (rules.REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normal(line.split("==")[0]) for line in lines}
    wanted = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    names = {normal(re.split(r"[\[><=]", requirement)[0]) for requirement in wanted} - {"oncron"}
    assert names - pinned == set()


def test_a_wheel_carries_the_types_marker_and_every_query(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    subprocess.run(command, cwd=rules.REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("oncron-*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())
    package = rules.SOURCE / "oncron"
    data = [file for file in package.rglob("*") if file.suffix in {".sql", ".lua", ".html", ".css", ".js", ".svg"}]
    wanted = {str(file.relative_to(rules.SOURCE)) for file in [package / "py.typed", *data]}
    assert wanted - carried == set()
    assert not [name for name in carried if name.startswith("tests")]
