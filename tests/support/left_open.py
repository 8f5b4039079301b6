# SPDX-License-Identifier: Apache-2.0
"""Names who opened what a test leaves open: sockets, files, databases, processes, event loops.

Python warns of these when it collects them, in whatever test that happens, and a warning is an
error. Tracing all memory, which would tell where the object was made, is too slow. So an audit hook
notes the place of each opening, and the error has it as a note. What a library of others opened for
itself is let go: LIBRARIES.
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
KEPT_MAX = 50_000  # Openings.
EVENTS = {"open", "socket.__new__", "sqlite3.connect/handle", "subprocess.Popen"}
HOLDERS = ("_transport", "_sock", "_ssock", "_proc", "raw", "buffer")
HELD_MAX = 50
DEPTH_MAX = 60  # Frames that are looked at.

#: Packages that leave open what they opened themselves, and why no test can close it.
LIBRARIES: dict[str, str] = {}


class Opening(NamedTuple):
    """Where something was opened."""

    place: str
    package: str  # Of others; empty for our own.
    test: str


Key = str | tuple[type, int]  # A path, or the identity of an object.
_openings: dict[Key, Opening] = {}


def install() -> None:
    """Note all openings from now on, and name them in errors of collected objects."""
    sys.addaudithook(_heard)
    reported = sys.unraisablehook

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if isinstance(error, ResourceWarning):
            opening = opening_of(source_of(unraisable))
            if opening is not None and opening.package in LIBRARIES:
                return
            error.add_note(
                f"It was opened at {opening.place}, in {opening.test}."
                if opening is not None
                else "It is not known where it was opened."
            )
        reported(unraisable)

    sys.unraisablehook = report


def source_of(unraisable: sys.UnraisableHookArgs) -> object:
    """Return what was left open: the object itself, or that of the `__del__` that warned."""
    trace = unraisable.exc_traceback
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "__del__":
            return trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    return unraisable.object


def opening_of(source: object) -> Opening | None:
    """Return where an object, or the socket or process that it holds, was opened."""
    held = [source]
    for each in held:  # It grows.
        if each is None or len(held) > HELD_MAX:
            continue
        name = getattr(each, "name", None)
        found = _openings.get(_key_of(each))
        if found is None and isinstance(name, str):
            found = _openings.get(name)
        if found is not None:
            return found
        held += [getattr(each, name, None) for name in HOLDERS]
        extra = getattr(each, "_extra", None)  # A transport's that is closed.
        held.append(extra.get("socket") if isinstance(extra, dict) else None)
    return None


def _heard(event: str, values: tuple[Any, ...]) -> None:
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
        for end in ("stdin", "stdout", "stderr"):
            pipe = getattr(process, end, None)
            while pipe is not None:  # Of text, of bytes, of the system.
                keys.append(_key_of(pipe))
                pipe = getattr(pipe, "buffer", None) or getattr(pipe, "raw", None)
    else:
        keys.append(_key_of(values[0]))
    opening = _opening(frame) if keys else None
    if opening is None:
        return
    for key in keys:
        _openings.pop(key, None)  # The last one comes last.
        _openings[key] = opening
    while len(_openings) > KEPT_MAX:
        _openings.pop(next(iter(_openings)), None)


def _key_of(thing: object) -> Key:
    """Return a key by identity: no reference, which would keep it open."""
    return type(thing), id(thing)


def _opening(frame: FrameType | None) -> Opening | None:
    """Return the innermost frame that is not of the standard library, and that of its test."""
    places: list[str] = []
    package = ""
    for _ in range(DEPTH_MAX):
        if frame is None:
            break
        path = frame.f_code.co_filename
        if not places and PACKAGES in path:
            package = path.rpartition(PACKAGES)[2].partition(os.sep)[0]
        is_test = path.startswith(TESTS)
        if is_test or (not places and not path.startswith((STANDARD, "<"))):
            places.append(f"{path.removeprefix(ROOT)}:{frame.f_lineno}")
        if is_test:
            break
        frame = frame.f_back
    if not places:
        return None
    return Opening(
        ", called from ".join(places), package, os.environ.get("PYTEST_CURRENT_TEST", "no test")
    )
