# SPDX-License-Identifier: Apache-2.0
"""Name the test and the line that opened a resource which was left open.

Resources are sockets, files, databases, processes and event loops. Python warns when it collects an
open one, during any later test, and the warning is an error. An audit hook records the position of
each opening, which the error gets as a note. tracemalloc could find the position as well, but it is
too slow. Packages in LIBRARIES may leave their resources open.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import FrameType

ROOT = f"{Path(__file__).parents[2]}{os.sep}"
TESTS = f"{ROOT}tests{os.sep}"
STANDARD = sysconfig.get_path("stdlib") + os.sep
PACKAGES = f"{os.sep}site-packages{os.sep}"
OPENINGS_MAX = 50_000  # The number of recorded openings.
EVENTS = {"open", "socket.__new__", "sqlite3.connect/handle", "subprocess.Popen"}
HOLDERS = ("_transport", "_sock", "_ssock", "_proc", "raw", "buffer")
HOLDERS_MAX = 50  # Objects that `opening_of` follows.
DEPTH_MAX = 60  # Frames that `_opening` reads.

#: Packages that leave their own resources open, each with the reason why no test can close them.
LIBRARIES: dict[str, str] = {}


class Opening(NamedTuple):
    """The opening of a resource."""

    position: str  # File and line.
    package: str  # The third-party package that opened it; empty for Headrace and its tests.
    test: str  # The id of the test that ran.


Key = str | tuple[type, int]  # A path, or the identity of an object.
_openings: dict[Key, Opening] = {}


def install() -> None:
    """Record all later openings, and add them to the errors of collected objects."""
    sys.addaudithook(_record)
    earlier_hook = sys.unraisablehook

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if isinstance(error, ResourceWarning):
            opening = opening_of(source_of(unraisable))
            if opening is not None and opening.package in LIBRARIES:
                return
            error.add_note(
                f"It was opened at {opening.position}, in {opening.test}."
                if opening is not None
                else "It is not known where it was opened."
            )
        earlier_hook(unraisable)

    sys.unraisablehook = report


def source_of(unraisable: sys.UnraisableHookArgs) -> object:
    """Return the object that was left open, which is `self` if its `__del__` warned."""
    trace = unraisable.exc_traceback
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "__del__":
            return trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    return unraisable.object


def opening_of(source: object) -> Opening | None:
    """Return the opening of an object, or of the socket or process that it holds; else None."""
    holders = [source]
    for holder in holders:  # The list grows by the objects that each one holds.
        if holder is None or len(holders) > HOLDERS_MAX:
            continue
        name = getattr(holder, "name", None)
        opening = _openings.get(_key_of(holder))
        if opening is None and isinstance(name, str):
            opening = _openings.get(name)
        if opening is not None:
            return opening
        holders += [getattr(holder, name, None) for name in HOLDERS]
        extra = getattr(holder, "_extra", None)  # A closed transport has its socket there.
        holders.append(extra.get("socket") if isinstance(extra, dict) else None)
    return None


def _record(event: str, values: tuple[Any, ...]) -> None:
    if event not in EVENTS:
        return
    frame = sys._getframe(1)
    keys: list[Key] = []
    if event == "open":
        if isinstance(values[0], str) and not values[0].endswith((".py", ".pyc")):
            keys.append(values[0])
    elif event == "subprocess.Popen":
        process = frame.f_locals.get("self")
        keys.append(_key_of(process))
        for name in ("stdin", "stdout", "stderr"):
            pipe = getattr(process, name, None)
            while pipe is not None:  # The layers of text, bytes and system calls.
                keys.append(_key_of(pipe))
                pipe = getattr(pipe, "buffer", None) or getattr(pipe, "raw", None)
    else:
        keys.append(_key_of(values[0]))
    opening = _opening(frame) if keys else None
    if opening is None:
        return
    for key in keys:
        _openings.pop(key, None)  # The newest opening is the last.
        _openings[key] = opening
    while len(_openings) > OPENINGS_MAX:
        _openings.pop(next(iter(_openings)), None)


def _key_of(resource: object) -> Key:
    """Return the key of an object, without a reference that would keep the object open."""
    return type(resource), id(resource)


def _opening(frame: FrameType | None) -> Opening | None:
    """Return the innermost frame outside of the standard library, and the frame of its test."""
    positions: list[str] = []
    package = ""
    for _ in range(DEPTH_MAX):
        if frame is None:
            break
        path = frame.f_code.co_filename
        if not positions and PACKAGES in path:
            package = path.rpartition(PACKAGES)[2].partition(os.sep)[0]
        is_test = path.startswith(TESTS)
        if is_test or (not positions and not path.startswith((STANDARD, "<"))):
            positions.append(f"{path.removeprefix(ROOT)}:{frame.f_lineno}")
        if is_test:
            break
        frame = frame.f_back
    if not positions:
        return None
    return Opening(
        ", called from ".join(positions), package, os.environ.get("PYTEST_CURRENT_TEST", "no test")
    )
