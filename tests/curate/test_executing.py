"""The hook that hands a program to a command: stand-in commands that pass, fail, hang, fork and flood."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from curate.errors import OptionError
from curate.executing import ExecuteLimits, check_command, execute, has_main
from curate.syntax import parse_cuda

PROGRAM = "// größe\nint main() { return 0; }\n"
QUICK = ExecuteLimits(seconds=20, memory_mb=512, file_mb=4)


def python(code: str, *arguments: str) -> str:
    return shlex.join([sys.executable, "-c", code, *arguments])


def test_the_program_arrives_whole_in_a_folder_of_its_own() -> None:
    code = (
        "import sys, os; p = sys.argv[1]; print(os.path.basename(p), os.listdir('.'), open(p, encoding='utf-8').read())"
    )
    result = execute(python(code), PROGRAM, QUICK)
    assert result.status == "pass"
    assert result.output_tail == f"program.cu ['program.cu'] {PROGRAM}".strip()


def test_braces_say_where_the_path_goes() -> None:
    code = "import sys; print([a[-10:] for a in sys.argv[1:]])"
    assert execute(python(code, "--in={}", "last"), PROGRAM, QUICK).output_tail == "['program.cu', 'last']"


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import os; os.abort()", "bytearray(1 << 30)"])
def test_exit_codes_signals_and_memory_fail(code: str) -> None:
    assert execute(python(code), PROGRAM, QUICK).status == "fail"


def test_a_command_that_is_not_there_fails_and_says_so() -> None:
    result = execute("no-such-command-cuset", PROGRAM, QUICK)
    assert (result.status, result.output_tail) == ("fail", "No such file or directory: no-such-command-cuset")


def test_a_hanging_command_and_its_children_are_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; p = os.fork(); p and open({str(pid)!r}, 'w').write(str(p)); print('on', flush=True); time.sleep(60)"
    result = execute(python(code), PROGRAM, ExecuteLimits(seconds=1.5))
    assert (result.status, result.output_tail.split("\n")[0]) == ("timeout", "on")
    assert result.seconds < 10
    _is_gone(int(pid.read_text()))


def test_what_a_finished_command_leaves_running_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time\np = os.fork()\nif p: open({str(pid)!r}, 'w').write(str(p))\nelse: time.sleep(60)"
    assert execute(python(code), PROGRAM, QUICK).status == "pass"
    _is_gone(int(pid.read_text()))


def _is_gone(pid: int) -> None:
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the child is still running")


def test_a_flood_of_output_is_cut_and_its_end_kept() -> None:
    flood = "import sys\nfor _ in range(2000): sys.stdout.write('x' * 100000)"
    assert execute(python(flood), PROGRAM, QUICK).status == "fail"  # the largest file
    within = execute(python("print('x' * 1000000); print('the end')"), PROGRAM, QUICK)
    assert within.status == "pass"
    assert within.output_tail.endswith("xxx\nthe end")
    assert len(within.output_tail) <= 2000


def test_output_holds_no_control_characters_and_no_folders() -> None:
    code = (
        "import os, sys; print('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07', os.path.join(os.getcwd(), 'program.cu(3): error'), "
        "'/usr/include/stdio.h', 'a/b', '\\x00\\x08\\u202e')"
    )
    assert execute(python(code), PROGRAM, QUICK).output_tail == "red  program.cu(3): error stdio.h a/b ???"


def test_the_environment_is_nearly_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    code = "import os; print(sorted(os.environ)); print(os.environ['HOME'] == os.getcwd())"
    names, home = execute(python(code), PROGRAM, QUICK).output_tail.split("\n")
    assert "SECRET_TOKEN" not in names
    assert home == "True"
    assert os.environ["SECRET_TOKEN"] == "hidden"


@pytest.mark.parametrize("command", ["", "nvcc 'unclosed"])
def test_a_command_that_cannot_be_split(command: str) -> None:
    with pytest.raises(OptionError):
        execute(command, PROGRAM)
    with pytest.raises(OptionError, match="--execute"):
        check_command(command)


@pytest.mark.parametrize("command", ["no-such-command-cuset {}", "./check.sh {}", "/no/such/file", "/tmp", "{}"])
def test_a_command_that_could_run_nothing_is_refused_before_any_row(command: str) -> None:
    with pytest.raises(OptionError, match="--execute: ") as error:
        check_command(command)
    assert "\n" not in str(error.value)


def test_commands_that_can_run_are_let_through() -> None:
    check_command("sh -c 'exit 1' {}")
    check_command(shlex.join([sys.executable, "./own.py"]))


@pytest.mark.parametrize(
    ("code", "there"),
    [
        (PROGRAM, True),
        ("int main(int argc, char **argv) try { } catch (...) { }", True),
        ("#ifdef X\nint main() { }\n#endif", True),
        ('extern "C" { int main() { } }', True),
        ("int main();", False),
        ("namespace a { int main() { } }", False),
        ("struct S { int main() { return 0; } };", False),
        ("// int main() {}\nvoid f() { main(); }", False),
        ("", False),
    ],
)
def test_main_is_found_by_the_tree(code: str, there: bool) -> None:
    assert has_main(parse_cuda(code)) is there
