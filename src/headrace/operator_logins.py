# SPDX-License-Identifier: Apache-2.0
"""Lifetime and number of the logins of operators: tickets, and sessions of the console."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_S = 15 * 60.0  # The time without a request after which a login ends.
LIFE_S = 8 * 3600.0  # The longest duration of a login.

Login = TypeVar("Login")


def is_over(began_s: float, used_s: float, now_s: float) -> bool:
    """Return True if a login has ended by its age."""
    return now_s - used_s > IDLE_S or now_s - began_s > LIFE_S


class LoginCache(OrderedDict[bytes, Login]):
    """Logins by a hash of their secret, the longest idle one first.

    The caller moves a login to the end when it is used.
    """

    def add(self, key: bytes, login: Login, maximum: int) -> None:
        """Add a login; above ``maximum`` logins, drop those that have been idle longest."""
        self[key] = login
        while len(self) > maximum:
            self.popitem(last=False)

    def make_room(self, is_own: Callable[[Login], bool], maximum: int) -> None:
        """Drop the longest idle logins of one user, so that it has ``maximum`` with another one.

        ``is_own`` returns True for a login of this user.
        """
        own = [key for key, login in self.items() if is_own(login)]
        for key in own[: max(0, len(own) + 1 - maximum)]:
            del self[key]
