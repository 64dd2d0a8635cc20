"""The command line as a whole: its grammar, its errors, its output in pipes and on terminals."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest

from oncron.cli import COMMANDS

NAMES = [name for group in COMMANDS.values() for name in group]


def test_help_names_every_command(oncron):
    told = oncron("--help")
    assert told.code == 0
    assert all(re.search(rf"^  {name} ", told.out, re.MULTILINE) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(oncron, name):
    told = oncron(name, "--help")
    assert told.code == 0
    assert told.out.startswith(f"Usage: oncron {name}")
    assert name in ("run", "demo", "queue", "dead", "exec", "crontab", "lock", "import", "web") or "--json" in told.out


def test_without_a_command_it_shows_help_and_exits_2(oncron):
    told = oncron()
    assert told.code == 2
    assert "Usage: oncron" in told.err


def test_the_version_is_told(oncron):
    assert re.fullmatch(r"oncron \d+\.\d+\.\d+\S*\n", oncron("--version").out)


WRONG = [
    ("fier jobs x", "did you mean 'fire'?"),
    ("schedules", "give a TARGET (module:attribute), or --store URL"),
    ("schedules nowhere", "no module 'nowhere'"),
    ("schedules jobs.py", "write 'jobs' for 'jobs.py'"),
    ("schedules jobs:nothing", "write jobs:app"),
    ("schedules jobs:report", "no Oncron"),
    ("schedules two", "write two:a or two:b"),
    ("schedules empty", "holds no Oncron"),
    ("schedules unreadable", "unreadable.py:1: SyntaxError"),
    ("schedules refused", "refused.py:3: '61 * * * *' (minute): 61 is outside 0-59"),
    ("run needs_more", "No module named 'not_there'"),
    ("schedules sqlite:///shop.db", "write --store sqlite:///shop.db"),
    ("schedules jobs --store sqlite:///shop.db", "'jobs' is one word too many"),
    ("schedules --store sqlite:///typo.db", "there is no file 'typo.db'"),
    ("schedules --store carrot://x", "unknown scheme 'carrot'"),
    ("schedules --store postgresql://u:secret@127.0.0.1:1/x", "cannot be reached"),
    ("schedules jobs --namespace other", "--namespace goes with --store"),
    ("pause jobs", "SCHEDULE is missing after the target 'jobs'"),
    ("pause jobs nothing", "no schedule 'nothing'"),
    ("fire jobs reindex twice", "'twice' is one word too many"),
    ("show jobs nothing", "neither a run nor a schedule"),
    ("next jobs nothing", "no schedule 'nothing'"),
    ("retry jobs nothing", "no run 'nothing'"),
    ("runs jobs --state gone", "'gone' is not one of 'pending'"),
    ("runs jobs --limit 0", "--limit"),
    ("run jobs --queues a=1,b", "give every queue a weight, or none"),
    ("run jobs --queues a=1,a=2", "'a' is there twice"),
    ("run jobs --only neither", "'neither' is not one of"),
    ("explain 61_*_*_*_*", "61 is outside 0-59"),
    ("explain 0_3_*_*_* --timezone Europe/Berlni", "did you mean Europe/Berlin"),
    ("demo --store memory://", "memory:// lives in one process"),
    ("demo --replicas 1", "--replicas"),
]


@pytest.mark.parametrize(("command", "told"), WRONG, ids=[command for command, _ in WRONG])
def test_wrong_use_is_one_clear_line_and_exit_code_2(oncron, shop, tmp_path, monkeypatch, command, told):
    modules = {
        "two": "from oncron import Oncron\na = Oncron('memory://')\nb = Oncron('memory://')\n",
        "empty": "",
        "unreadable": "x = (",
        "refused": "from oncron import Oncron, cron\napp = Oncron('memory://')\napp.schedule(cron('61 * * * *'))\n",
        "needs_more": "import not_there\n",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = oncron(*(word.replace("_", " ") if "_*" in word else word for word in command.split()))
    assert result.code == 2
    assert told in result.err
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    assert "secret" not in result.err
    assert result.out == ""
    assert not Path("typo.db").exists()


def test_a_store_without_the_schema_is_named_with_the_mend(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.db").touch()
    refused = oncron("schedules", "--store", "sqlite:///new.db")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "oncron migrate" in refused.err
    assert oncron("migrate", "--store", "sqlite:///new.db").code == 0
    assert oncron("schedules", "--store", "sqlite:///new.db").out == "No schedules.\n"


def test_the_store_may_come_from_the_environment(oncron, shop, monkeypatch):
    monkeypatch.setenv("ONCRON_STORE", f"sqlite:///{shop}/shop.db")
    assert len(oncron("schedules", "--json").json) == 4
    assert oncron("show", "reindex", "--json").json["name"] == "reindex"


def test_a_namespace_of_its_own_is_looked_into(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert oncron("migrate", "--store", "sqlite:///a.db", "--namespace", "other").code == 0
    assert oncron("runs", "--store", "sqlite:///a.db", "--namespace", "other").code == 0
    assert oncron("runs", "--store", "sqlite:///a.db").code == 2


# --- pipes and terminals ----------------------------------------------------------------------


def test_a_pipe_gets_whole_lines_without_colours(in_process, shop):
    told = in_process("next", "jobs", "-n", "2", cwd=shop)
    assert told.code == 0
    assert "\x1b" not in told.out
    assert "…" not in told.out
    assert "report-weekdays" in told.out
    assert not any(line.endswith(" ") for line in told.out.splitlines())


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1", "TERM": "dumb"},
    ],
    ids=["C locale", "ascii", "no colour"],
)
def test_every_environment_can_show_every_name(in_process, tmp_path, environment):
    (tmp_path / "jobs.py").write_text(
        "from oncron import Oncron, every\napp = Oncron('memory://')\n"
        "@app.schedule(every(minutes=5), name='nächtlich-日本')\ndef fn() -> None: ...\n",
        encoding="utf-8",
    )
    told = in_process("check", "jobs", cwd=tmp_path, environment=environment)
    assert (told.code, told.err) == (0, "")
    assert "nächtlich-日本" in told.out or "n\\xe4chtlich-\\u65e5\\u672c" in told.out
    as_json = in_process("next", "jobs", "--json", "-n", "1", cwd=tmp_path, environment=environment)
    assert as_json.json[0]["schedule"] == "nächtlich-日本"


def test_a_reader_that_has_seen_enough_is_no_error(shop):
    done = subprocess.run(
        f"{sys.executable} -m oncron explain '* * * * *' -n 1000 --json | head -1",
        shell=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == b"{\n"
    assert done.stderr == b""


def on_terminal(columns: int, *arguments: str, cwd: Path, **environment: str) -> str:
    """What a command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "oncron", *arguments],
        cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env=kept | {"TERM": "xterm"} | environment,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux answers so when the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    process.wait(30)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("command", ["schedules jobs", "next jobs", "runs jobs", "show jobs broken", "check jobs"])
def test_tables_fit_the_terminal_and_nothing_is_cut_off(shop, command, columns):
    shown = on_terminal(columns, *command.split(), cwd=shop, NO_COLOR="1")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= columns
    assert "…" not in plain
    assert columns < 80 or "broken" in plain


def test_a_terminal_gets_colours_unless_told_otherwise(shop):
    assert "\x1b[31m" in on_terminal(80, "runs", "jobs", "--schedule", "broken", cwd=shop)
    assert "\x1b[31m" not in on_terminal(80, "runs", "jobs", "--schedule", "broken", cwd=shop, NO_COLOR="1")


# --- quick to start ---------------------------------------------------------------------------


def test_help_imports_neither_the_engine_nor_a_store():
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "oncron", "--help"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stderr  # fmt: skip
    loaded = set(re.findall(r"\| +(oncron[.\w]*|asyncio|msgspec|rich)$", told, re.MULTILINE))
    assert loaded == {"oncron", "oncron.cli"}


def test_every_public_name_has_a_home():
    import oncron

    assert set(oncron.__all__) == set(oncron._HOME_OF)
    assert all(getattr(oncron, name) is not None for name in oncron.__all__)
    assert set(oncron.__all__) <= set(dir(oncron))
    with pytest.raises(AttributeError, match="no attribute 'Oncrn'"):
        oncron.Oncrn  # noqa: B018
