# SPDX-License-Identifier: Apache-2.0
"""The programs in the manual run as they stand, but for the port."""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from headrace.server.config.settings import Settings
from headrace.testing import LocalBroker
from support.timeouts import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
DEFAULT = re.compile(r"amqp://guest:guest@(127\.0\.0\.1|localhost)/")


@pytest.mark.parametrize("page", ["README.md", "docs/guides/client.md"])
def test_the_first_program_prints_what_it_published(
    page: str, headrace_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    program = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[0]
    assert len([line for line in program.splitlines() if line]) <= 16
    program, found = DEFAULT.subn(headrace_broker.url, program)
    assert found == 1
    exec(compile(program, page, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "one coffee\n"


def test_the_first_command_serves_the_pages_that_it_names(tmp_path: Path) -> None:
    """The ready line has their address; on the default port it is the one in the README."""
    text = (ROOT / "README.md").read_text().partition("## First publish and consume")[2]
    (command,) = re.findall(
        r"^headrace (serve .*?) +# .* pages on (http://\S+)$", text, re.MULTILINE
    )
    assert command[1] == f"http://127.0.0.1:{Settings().console_port}"
    free = ("--port=0", "--console-port=0", "--metrics-port=0", f"--data={tmp_path}")
    broker = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *shlex.split(command[0]), *free],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert broker.stdout is not None
    try:
        ready = json.loads(broker.stdout.readline().removeprefix("headrace ready "))
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", ready["http"])
        with urllib.request.urlopen(ready["http"], timeout=PATIENCE_S) as answer:
            assert b'name="password"' in answer.read()
    finally:
        broker.terminate()
        broker.wait(PATIENCE_S)
        broker.stdout.close()
