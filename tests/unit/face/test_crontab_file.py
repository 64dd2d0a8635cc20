"""A crontab's text. What Debian's cron 3.0pl1-162 made of the same lines was looked at by running it."""

from __future__ import annotations

import pytest

from oncron.cli.crontab_file import Crontab, Entry, read, split_percent


def crontab(*lines: str, timezone: str | None = "UTC", system: bool = False) -> Crontab:
    return read("\n".join(lines), timezone=timezone, system=system)


def only(*lines: str, system: bool = False) -> Entry:
    found = crontab(*lines, system=system)
    assert found.broken == []
    (entry,) = found.entries
    return entry


def why(*lines: str, system: bool = False) -> str:
    found = crontab(*lines, system=system)
    (remark,) = found.broken
    return f"{remark.number}: {remark.text}"


def test_comments_and_blank_lines_say_nothing() -> None:
    assert crontab("# 0 3 * * * x", "", "   # indented", "\t").entries == []


def test_fields_are_parted_by_blanks_and_tabs_and_the_rest_is_the_command() -> None:
    entry = only("  0\t3  * *\t* \techo 'a  b' # no comment   ")
    assert str(entry.trigger) == 'cron("0 3 * * *", timezone="UTC")'
    assert entry.command == "echo 'a  b' # no comment"


def test_the_last_line_needs_no_newline() -> None:
    assert only("* * * * * true").command == "true"


@pytest.mark.parametrize("alias", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"])
def test_the_aliases_are_schedules(alias: str) -> None:
    assert str(only(f"{alias} true").trigger) == f'cron("{alias}", timezone="UTC")'


# --- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("  FOO = bar baz   ", "FOO", "bar baz"),
        ('Q="quoted  value"  ', "Q", "quoted  value"),
        ("S='single'", "S", "single"),
        ("H=val # not a comment", "H", "val # not a comment"),
        ('E=""', "E", ""),
        ("P=$HOME/bin", "P", "$HOME/bin"),
        ('X=a"b', "X", 'a"b'),
        ("'N M' = x", "N M", "x"),
        ("O=a=b", "O", "a=b"),
    ],
)
def test_a_setting_is_what_cron_makes_of_it(line: str, name: str, value: str) -> None:
    assert only(line, "* * * * * true").environment == {name: value}


@pytest.mark.parametrize(("line", "says"), [("E=", '1: E= has no value; write E=""'), ('W="a', "1: the quote after W="),
                                            ('Y="a" b', "1: the quote after Y=")])  # fmt: skip
def test_a_setting_that_cron_refuses_is_broken(line: str, says: str) -> None:
    assert why(line, "* * * * * true").startswith(says)


def test_a_setting_counts_for_the_lines_below_it() -> None:
    found = crontab("* * * * * one", "A=1", "* * * * * two", "A=2", "* * * * * three")
    assert [entry.environment.get("A") for entry in found.entries] == [None, "1", "2"]


def test_an_assignment_in_a_command_is_no_setting() -> None:
    assert only("* * * * * A=b run").command == "A=b run"


def test_mail_is_ignored_and_that_is_said_once() -> None:
    found = crontab("MAILTO=root", "* * * * * true", "MAILTO=other")
    assert [(notice.number, notice.text.split(":")[0]) for notice in found.notices] == [(1, "MAILTO is ignored")]
    assert found.entries


# --- percent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        (r"date +\%F", "date +%F", ""),
        (r"printf '\%s' 'a\\b' 'c\d' 'e\\\%f'", r"printf '%s' 'a\b' 'c\d' 'e\%f'", ""),
        (r"cat%line one%line \% two\x \\% end", "cat", "line one\nline % two\\x \\% end\n"),
        ("cat%", "cat", ""),
        ("cat%%x", "cat", "\nx\n"),
        ("cat%a%", "cat", "a\n"),
        ("cat%a\\", "cat", "a\\\n"),
        ("end\\", "end\\", ""),
    ],
)
def test_percent_is_what_it_is_under_cron(text: str, command: str, stdin: str) -> None:
    assert split_percent(text) == (command, stdin)


# --- zones ----------------------------------------------------------------------------------


def test_cron_tz_is_the_zone_of_the_lines_below_it() -> None:
    found = crontab("@daily a", "CRON_TZ=Asia/Tokyo", "@daily b", "CRON_TZ=Europe/Berlin", "@daily c")
    assert [entry.trigger.timezone for entry in found.entries] == ["UTC", "Asia/Tokyo", "Europe/Berlin"]


def test_lines_without_any_zone_are_named() -> None:
    assert crontab("@daily a", "CRON_TZ=Asia/Tokyo", "@daily b", timezone=None).zoneless == [1]


def test_a_zone_that_does_not_exist_is_broken_once() -> None:
    assert "Asia/Tokio" in why("CRON_TZ=Asia/Tokio", "@daily a")


# --- names and options ----------------------------------------------------------------------


def test_a_name_is_made_of_the_line_alone() -> None:
    one = only("0 3 * * * /usr/local/bin/backup.sh --all")
    other = crontab("A=1", "* * * * * first", "0  3 * *\t* /usr/local/bin/backup.sh --all").entries[1]
    assert one.name == other.name
    assert one.name.startswith("backup.sh-")
    assert only("0 4 * * * /usr/local/bin/backup.sh --all").name != one.name
    assert only("0 3 * * * /usr/local/bin/backup.sh").name != one.name


def test_this_release_and_the_next_make_the_same_name() -> None:
    assert only("*/5 * * * * /usr/bin/true --x").name == "true-67cf0373"


def test_equal_lines_are_counted() -> None:
    names = [entry.name for entry in crontab(*["* * * * * true"] * 3).entries]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_a_comment_names_the_line_below_it_and_gives_it_options() -> None:
    found = crontab("# oncron: name=backup timeout=30min overlap=wait", "", "# why", "* * * * * one", "* * * * * two")
    first, second = found.entries
    assert (first.name, first.options) == ("backup", {"timeout": "30min", "overlap": "wait"})
    assert second.options == {}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("# oncron: nmae=x", "* * * * * a"), "1: 'nmae=x' is no option"),
        (("# oncron: name", "* * * * * a"), "1: 'name' is no option"),
        (("# oncron: name='x", "* * * * * a"), "1: the options after `oncron:`"),
        (("# oncron: name=a name=b", "* * * * * a"), "1: name= is there twice"),
        (("* * * * * a", "# oncron: name=a"), "2: no line follows"),
        (("# oncron: name=a", "* * * * * a", "# oncron: name=a", "* * * * * b"), "4: the name 'a' is there twice"),
    ],
)
def test_options_that_mean_nothing_are_broken(lines: tuple[str, ...], says: str) -> None:
    assert why(*lines).startswith(says)


# --- users ----------------------------------------------------------------------------------


def test_a_system_crontab_has_a_user_column() -> None:
    entry = only("17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly", system=True)
    assert (entry.user, entry.command) == ("root", "cd / && run-parts --report /etc/cron.hourly")
    assert only("@daily root true", system=True).user == "root"


# --- broken lines ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("@reboot start", "@reboot is refused: the start of one host"),
        ("@every 5m x", "@every is refused: write */5"),
        ("@dayly x", "no such alias"),
        ("61 * * * * x", "minute"),
        ("0 0 30 2 * x", "no such date ever occurs"),
        ("* * * * *", "no command after the schedule"),
        ("* * * *", "4 fields where 5 are needed"),
        ("@daily", "no command after the schedule"),
        ("* * * * * %x", "no command before the first %"),
        ("* * * * * x\r", "carriage return"),
        ("* * * * * x\0y", "NUL"),
        ("A B = c", "fields"),
    ],
)
def test_a_broken_line_is_told_with_its_mend(line: str, says: str) -> None:
    assert says in why(line)


def test_a_system_line_without_a_command_is_broken() -> None:
    assert "a user and a command" in why("* * * * * root", system=True)


def test_every_broken_line_is_found() -> None:
    found = crontab("@reboot a", "* * * * * fine", "61 * * * * b", "E=", "* * * *")
    assert [remark.number for remark in found.broken] == [1, 3, 4, 5]
