# SPDX-License-Identifier: Apache-2.0
"""The files in deploy/ are valid for the programs that read them."""

import re
import subprocess
import tomllib
from pathlib import Path

from headrace.server.config.settings import SETTINGS, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = "/opt/headrace/bin/headrace"


def test_systemd_takes_the_unit_without_a_word(tmp_path: Path) -> None:
    unit = tmp_path / "headrace.service"
    text = (DEPLOY / "headrace.service").read_text()
    assert text.count(PROGRAM) == 2
    unit.write_text(text.replace(PROGRAM, "/bin/true"))  # systemd looks whether it is there.
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_says_nothing_that_ubuntu_2204_does_not_know() -> None:
    newer_than_247 = {
        "notify-reload",
        "RestartSteps",
        "OpenFile",
        "ExitType",
        "MemoryPressureWatch",
    }
    text = (DEPLOY / "headrace.service").read_text()
    assert not {word for word in newer_than_247 if word in text}


def test_the_settings_of_the_service_are_settings() -> None:
    settings = load({}, {}, DEPLOY / "headrace.toml")
    written = tomllib.loads((DEPLOY / "headrace.toml").read_text())
    assert {name: str(value) for name, value in written.items()} == {
        name: str(getattr(settings, name)) for name in written
    }


def test_variables_of_the_container_are_settings() -> None:
    texts = [(DEPLOY / name).read_text() for name in ("Dockerfile", "compose.yaml")]
    given = {name for text in texts for name in re.findall(r"\bHEADRACE_\w+", text)}
    assert {"HEADRACE_HOST", "HEADRACE_DATA", "HEADRACE_DEFAULT_USER"} <= given
    assert given <= {row.variable for row in SETTINGS}


def test_what_the_package_takes_from_the_tree_is_there() -> None:
    script = (ROOT / "tools" / "deb.sh").read_text()
    taken = re.findall(r'"\$root/(\S+)"', script)
    assert "deploy/headrace.service" in taken
    assert [name for name in taken if not (ROOT / name).is_file()] == []
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_what_the_image_copies_is_there() -> None:
    copied = re.findall(r"^COPY ([^-].*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert "build_ext.py" in names
    assert [name for name in names if not (ROOT / name).exists()] == []
