# SPDX-License-Identifier: Apache-2.0
"""KeyboardInterrupt at a step of a call that a test chooses."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Interrupted:
    """A block whose code gets a KeyboardInterrupt at one of its steps, counted from 0.

    A step is the start of a Python function or the return of a C function. Python checks for
    signals there. It also does so between iterations of a loop, which the calls in the loop cover.
    """

    def __init__(self, step: int) -> None:
        self.where = ""
        self._left = step
        self._earlier: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        self._earlier = sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._earlier)

    def _profile(self, frame: FrameType, event: str, function: object) -> None:
        if event not in ("call", "c_return"):
            return
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
            call = "" if event == "call" else f", after {function!r}"
            self.where = f"{frame.f_code.co_name}:{frame.f_lineno}{call}"
            raise KeyboardInterrupt
