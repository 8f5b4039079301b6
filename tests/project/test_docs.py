# SPDX-License-Identifier: Apache-2.0
"""The examples of the manual and of the README run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from support.brokers.queue_kind_host import Host
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.testing import LocalBroker

ROOT = Path(__file__).parent.parent.parent
LOCAL = re.compile(r"amqp://guest:guest@(?:localhost|127\.0\.0\.1)/")


def examples(page: str) -> list[str]:
    """The Python blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(code: str, broker: LocalBroker) -> str:
    """Run an example in a process of its own; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOCAL.sub(broker.url, code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# What pytest-asyncio and anyio do, as far as the example needs it.
RUN_COROUTINES = """
import asyncio, inspect

def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: a coroutine")

def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""

EXPECTED = {
    ("docs/guides/client.md", 0): "one coffee\n",
    ("docs/guides/client.md", 1): "one coffee\n",
    ("docs/guides/client.md", 2): (
        "1000 confirmed\nnobody wants ice\n{'dish': 'soup', 'table': 7} Ada soup.hot\n"
    ),
    ("docs/guides/client.md", 3): "RAW\n",
    ("docs/guides/client.md", 4): "0 log one\n1 log two\n2 log three\n",
    ("docs/guides/client.md", 5): "from 0-8\nfrom 0-9\nfrom 0-9-1\nfrom 0-10\n",
    ("docs/guides/client.md", 6): "['first', 'second', 'third']\n2 left\n",
    ("docs/guides/client.md", 7): "<Connection to URL, open> None\n",
    ("README.md", 0): "one coffee\n",
    ("docs/guides/dead-letters.md", 0): "one coffee rejected\n",
    ("docs/guides/groups.md", 0): "0 and on: 3 messages\n3 and on: 0 messages\n",
    ("docs/guides/staged-batches.md", 0): "2 messages; the last batch is 0\n",
    ("docs/guides/super-streams.md", 0): "events-0 has customer-17\n",
}


@pytest.mark.parametrize(("page", "number"), EXPECTED)
def test_example(page: str, number: int, headrace_broker: LocalBroker) -> None:
    printed = run(examples(page)[number], headrace_broker)
    address = f"amqp://127.0.0.1:{headrace_broker.port}//"
    assert printed.replace(address, "URL") == EXPECTED[page, number]


def test_every_example_of_the_client_is_run() -> None:
    assert len(examples("docs/guides/client.md")) == 8
    assert len(examples("README.md")) == 1
    assert len(examples("docs/guides/testing.md")) == 7


def test_the_example_of_the_support_of_tests() -> None:
    names: dict[str, Any] = {}
    exec(examples("docs/guides/test-support.md")[0], names)  # It is ours.
    names["test_an_acked_message_is_gone"](Host())


def test_the_examples_for_pytest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, headrace_broker: LocalBroker
) -> None:
    fixtures, shared, other, settings, coroutine, opened, local = examples("docs/guides/testing.md")
    monkeypatch.setenv("PYTHONPATH", str(Path(headrace.__file__).parent.parent))
    pytester.makeconftest(RUN_COROUTINES)
    pytester.makepyfile(
        test_fixtures=fixtures,
        test_shared=f"{shared}\n\n{other}",
        test_settings=settings,
        test_coroutine=coroutine,
    )
    result = pytester.runpytest_subprocess("-p", "headrace.testing.plugin", "-q")
    result.assert_outcomes(passed=5)
    assert "pytest_asyncio" in opened  # Which is not needed here.
    compile(opened, "testing.md", "exec")
    assert run(local, headrace_broker).startswith("amqp://guest:guest@127.0.0.1:")
