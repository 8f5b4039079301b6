# SPDX-License-Identifier: Apache-2.0
"""Lifetime and number of the logins of operators: tickets, and sessions of the console."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_S = 15 * 60.0  # The time from its last request to the end of a login.
LIFE_S = 8 * 3600.0  # The longest time of a login.

Login = TypeVar("Login")


def is_over(began_s: float, used_s: float, now_s: float) -> bool:
    """Return True if a login has ended by its age."""
    return now_s - used_s > IDLE_S or now_s - began_s > LIFE_S


class LoginCache(OrderedDict[bytes, Login]):
    """Logins by a hash of their secret, the longest idle first.

    A use of a login moves it to the end.
    """

    def add(self, key: bytes, login: Login, maximum: int) -> None:
        """Add a login; above ``maximum`` logins, drop the longest idle."""
        self[key] = login
        while len(self) > maximum:
            self.popitem(last=False)

    def make_room(self, is_own: Callable[[Login], bool], maximum: int) -> None:
        """Drop the longest idle of one user, so that another one makes ``maximum``."""
        own = [key for key, login in self.items() if is_own(login)]
        for key in own[: max(0, len(own) + 1 - maximum)]:
            del self[key]
