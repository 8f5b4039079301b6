# SPDX-License-Identifier: Apache-2.0
"""A test that leaves something open fails, and the error names where it was opened."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SUPPORT = Path(__file__).parents[1]
CONFTEST = """
from support import left_open

def pytest_sessionstart():
    left_open.install()
"""
HEAD = """
import asyncio, gc, socket, sqlite3, subprocess, sys

kept = []
"""
PAIR = """
def test_{kind}_is_opened(tmp_path):
    def opened(path):
        {body}
    kept.append(opened(tmp_path))

def test_{kind}_is_collected():
    kept.clear()
    gc.collect()
"""
KINDS = {
    "socket": "return socket.socket()",
    "file": "return (path / 'file').open('w')",
    "process": "return subprocess.Popen(['true'])",
    "pipe": """
        process = subprocess.Popen(["true"], stdin=subprocess.PIPE, text=True)
        process.wait()
        return process
""",
    "loop": "return asyncio.new_event_loop()",
    "transport": """
        async def open_it():
            loop = asyncio.get_running_loop()
            mine, other = socket.socketpair()
            return await loop.create_connection(asyncio.Protocol, sock=mine), other
        return asyncio.run(open_it())
""",
}
if sys.version_info >= (3, 13):  # Earlier ones do not warn of it.
    KINDS["database"] = "return sqlite3.connect(':memory:')"


def test_what_is_left_open_fails_and_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makeini(f"[pytest]\nfilterwarnings = error\npythonpath = {SUPPORT}\n")
    pairs = (PAIR.format(kind=kind, body=body) for kind, body in KINDS.items())
    page = pytester.makepyfile(HEAD + "".join(pairs))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(KINDS), failed=len(KINDS))
    for kind in KINDS:
        result.stdout.fnmatch_lines(
            [f"*It was opened at {page}:*, in *::test_{kind}_is_opened (call)."]
        )
    assert "It is not known" not in result.stdout.str()
