# SPDX-License-Identifier: Apache-2.0
"""tools/system.sh on machines that lack something: one call of apt, or one message with all of it.

The machines are folders of programs: what they have is a link, what apt-get and its lists say is a
script that notes its calls.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.timeouts import PATIENCE_S

ROOT = Path(__file__).parents[2]
TOOLS = (  # Of any system; what is looked for is not among them.
    *("bash", "cat", "dirname", "grep", "head", "mktemp", "readlink", "rm", "sed", "sort", "tail"),
    *("touch", "sh", "ln", "date"),
)
JAVA = "echo 'openjdk version \"{}.0.1\" 2025-01-01' >&2"
BOOKWORM = {"default-jre-headless": "2:1.17-74", "openjdk-17-jre-headless": "17.0.1"}


class Machine:
    """A folder of programs, and the lists of packages of a distribution."""

    def __init__(self, home: Path) -> None:
        self.programs = home / "bin"
        self.programs.mkdir(parents=True)
        self.calls = home / "calls"
        self.release = home / "os-release"
        self.release.write_text("ID=debian\n")
        for name in TOOLS:
            found = shutil.which(name)
            assert found, name
            (self.programs / name).symlink_to(found)

    def program(self, name: str, text: str = "exit 0") -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def has(self, *names: str) -> None:
        """Give it programs that do nothing."""
        for name in names:
            self.program(name)

    def has_python(self, name: str = "python3", *, old: bool = False) -> None:
        self.program(name, "exit 1" if old else f'exec {sys.executable} "$@"')

    def has_apt(self, packages: dict[str, str], *, root: bool, brings: str = "") -> None:
        """Its user, the versions of its packages, and what an install does."""
        self.program("id", f"echo {0 if root else 1000}")
        cases = "".join(f"{name}) echo '  Candidate: {packages[name]}';;\n" for name in packages)
        self.program(
            "apt-cache",
            f'case $1 in policy) case $2 in {cases}*) echo "  Candidate: (none)";; esac;;\n'
            f"depends) echo '  Depends: {packages.get('python3', '')}';;\n"
            f"pkgnames) printf '%s\\n' {' '.join(packages)};; esac",
        )
        self.program(
            "apt-get",
            f'echo "$@" >>{self.calls}\ncase "$*" in *" install "*) {brings or ":"};; esac',
        )

    def set_up(self, purpose: str = "demo", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", ROOT / "tools" / "system.sh", purpose],
            env={"PATH": str(self.programs), "OS_RELEASE": str(self.release), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def asked(self) -> list[str]:
        """Return the calls of apt-get, from their verb on."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        verbs = ("update", "install")
        return [line[min(line.index(verb) for verb in verbs if verb in line) :] for line in lines]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def whole(machine: Machine) -> None:
    """All that the demo needs."""
    machine.has("make", "cc")
    machine.has_python()
    machine.program("java", JAVA.format(17))


def test_a_whole_machine_asks_nobody(machine: Machine) -> None:
    whole(machine)
    done = machine.set_up()
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_user_gets_one_command_for_all_that_is_missing(machine: Machine) -> None:
    machine.has_apt(BOOKWORM, root=False)
    machine.has_python()
    done = machine.set_up()
    assert done.returncode == 1
    assert done.stderr == (
        "headrace: these are missing: make, cc, Java 17 or newer (for Spark). As root: "
        "apt-get update && apt-get install --no-install-recommends "
        "make gcc libc6-dev default-jre-headless\n"
    )
    assert machine.asked() == []


def test_root_installs_all_of_it_in_one_call(machine: Machine, tmp_path: Path) -> None:
    packages = dict.fromkeys(("make", "gcc", "libc6-dev"), "1") | BOOKWORM
    later = Machine(tmp_path / "later")
    whole(later)
    copies = " ".join(f"{later.programs}/{name}" for name in ("make", "cc", "java"))
    brings = f"{shutil.which('cp')} {copies} {machine.programs}"
    machine.has_apt(packages, root=True, brings=brings)
    machine.has_python()
    done = machine.set_up()
    assert done.returncode == 0, done.stderr
    assert machine.asked() == [
        "update",
        "install --no-install-recommends make gcc libc6-dev default-jre-headless",
    ]


@pytest.mark.parametrize(
    ("packages", "chosen"),
    [
        (BOOKWORM, "default-jre-headless"),
        ({"default-jre-headless": "2:1.21-76"}, "default-jre-headless"),
        # Ubuntu 22.04, whose default is too old, and a distribution whose default is too new.
        (
            {"default-jre-headless": "2:1.11-72", "openjdk-21-jre-headless": "21"},
            "openjdk-21-jre-headless",
        ),
        (
            {"default-jre-headless": "2:1.29-1", "openjdk-25-jre-headless": "25"},
            "openjdk-25-jre-headless",
        ),
    ],
)
def test_java_is_the_default_or_the_newest_that_spark_runs_on(
    machine: Machine, packages: dict[str, str], chosen: str
) -> None:
    machine.has("make", "cc")
    machine.has_python()
    machine.program("java", JAVA.format(11))
    machine.has_apt(packages, root=False)
    assert machine.set_up().stderr.endswith(f" --no-install-recommends {chosen}\n")


@pytest.mark.parametrize(
    ("java", "text"),
    [
        (None, "and no java runs there. Unset it, or set it to a Java 17 to 25."),
        ("exit 127", "and no java runs there. Unset it, or set it to a Java 17 to 25."),
        (JAVA.format(11), "a Java 11. Spark needs 17 to 25: unset it, or set it to one of these."),
    ],
)
def test_a_java_home_that_does_not_do_is_named(
    machine: Machine, tmp_path: Path, java: str | None, text: str
) -> None:
    whole(machine)
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    if java is not None:
        machine.program("java.of.home", java)
        (machine.programs / "java.of.home").rename(tmp_path / "jdk" / "bin" / "java")
    done = machine.set_up(JAVA_HOME=str(tmp_path / "jdk"))
    assert done.returncode == 1
    assert done.stderr == f"headrace: JAVA_HOME is {tmp_path / 'jdk'}, {text}\n"


def test_a_newer_python_is_found_beside_an_old_one(machine: Machine) -> None:
    whole(machine)
    machine.has_python(old=True)
    machine.has_python("python3.12")
    assert machine.set_up().returncode == 0


def test_an_old_python_is_told_the_package_of_a_newer_one(machine: Machine) -> None:
    """Ubuntu 22.04 has 3.10, and packages of 3.11."""
    whole(machine)
    machine.has_python(old=True)
    machine.has_apt({"python3": "python3.10", "python3.10": "", "python3.11": ""}, root=False)
    done = machine.set_up()
    assert done.stderr.endswith(" python3.11 python3.11-venv python3.11-dev\n")


def test_a_python_that_was_asked_for_and_is_too_old_is_named(machine: Machine) -> None:
    whole(machine)
    machine.has_python("python3.9", old=True)
    machine.has_apt(BOOKWORM, root=False)
    done = machine.set_up(PYTHON="python3.9")
    assert "Python 3.11 or newer (python3.9 is not)" in done.stderr


def test_another_distribution_gets_the_names_of_debian(machine: Machine) -> None:
    machine.release.write_text("ID=fedora\n")
    machine.has_python()
    machine.has("make", "cc", "id")
    done = machine.set_up()
    assert done.returncode == 1
    assert done.stderr.startswith(
        "headrace: these are missing: Java 17 or newer (for Spark). Install them by this system's"
    )


@pytest.mark.parametrize("verb", ["update", "install"])
def test_what_apt_says_is_shown(machine: Machine, verb: str) -> None:
    whole(machine)
    (machine.programs / "java").unlink()
    machine.has_apt(BOOKWORM, root=True)
    machine.program(
        "apt-get", f'case "$*" in *{verb}*) echo "E: 404 Not Found" >&2; exit 100;; esac'
    )
    done = machine.set_up()
    assert done.returncode == 1
    assert "E: 404 Not Found\n" in done.stderr
    assert "see " in done.stderr.splitlines()[-1]


def test_a_package_that_the_distribution_lacks_is_named(machine: Machine) -> None:
    whole(machine)
    (machine.programs / "java").unlink()
    machine.has_apt({}, root=True)
    done = machine.set_up()
    assert done.returncode == 1
    assert "this distribution has no package default-jre-headless" in done.stderr


def test_a_java_that_is_still_too_old_afterwards_is_explained(machine: Machine) -> None:
    """Another java comes first in PATH than the one that apt installed."""
    whole(machine)
    machine.program("java", JAVA.format(11))
    machine.has_apt(BOOKWORM, root=True)
    done = machine.set_up()
    assert done.returncode == 1
    assert "the java in PATH is not 17 or newer. Set JAVA_HOME to" in done.stderr


# --- Long steps ---------------------------------------------------------------------------------


def steps(text: str) -> subprocess.CompletedProcess[str]:
    script = f". {ROOT / 'tools' / 'step.sh'}\nSILENT_S=0.01\n{text}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=os.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("how", ["step", "aloud"])
def test_a_long_step_is_not_silent(tmp_path: Path, how: str) -> None:
    """It goes on until its line has been seen, so that no time is waited for."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = steps(f'exec 3>&1\n{how} "long" sh -c "cat {fifo}" | tee {tmp_path / "said"} &\n'
                 f'until grep -q "… " {tmp_path / "said"} 2>/dev/null; do :; done\n'
                 f": >{fifo}; wait")  # fmt: skip
    assert done.returncode == 0, done.stderr
    # A second may have begun meanwhile.
    assert re.match(r"== long\n   … [01] s\n", done.stdout), done.stdout


def test_a_step_that_fails_shows_its_end_and_keeps_its_status() -> None:
    done = steps('SILENT_S=60\nstep "short" sh -c "echo early; echo late >&2; exit 7" || exit $?')
    assert (done.returncode, done.stdout) == (7, "== short\n")
    assert done.stderr == "early\nlate\nheadrace: failed after 0 s: short\n"


def test_a_step_that_succeeds_says_only_what_it_is() -> None:
    done = steps('SILENT_S=60\nstep "short" sh -c "echo much"')
    assert (done.returncode, done.stdout, done.stderr) == (0, "== short\n", "")


# --- Extras -------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", ["demo", "dev"])
def test_an_environment_that_compiles_has_setuptools(extra: str) -> None:
    """Virtual environments have had none of their own since Python 3.12."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(re.match("setuptools\\b", requirement) for requirement in extras[extra])


def test_a_step_aloud_shows_its_output_and_keeps_its_status() -> None:
    done = steps('SILENT_S=60\naloud "check" sh -c "echo one; echo two >&2; exit 7"; echo not so')
    assert (done.returncode, done.stdout, done.stderr) == (7, "== check\none\n", "two\n")


def test_no_step_of_lint_is_silent() -> None:
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", "lint", "quick-spark"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    recipes = done.stdout.replace("\\\n", "").splitlines()
    commands = [one for one in recipes if "/bin/" in one and "build_ext.py" not in one]
    assert len(commands) > 10
    assert [one for one in commands if "step.sh; aloud" not in one] == []
