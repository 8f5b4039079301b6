# SPDX-License-Identifier: Apache-2.0
"""How long the login of an operator lasts, and how many are kept: tickets, and sessions of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_S = 15 * 60.0  # A login ends so long after its last request,
LIFE_S = 8 * 3600.0  # and so long after it began.

Login = TypeVar("Login")


def is_over(began_s: float, used_s: float, now_s: float) -> bool:
    """Return True if a login has ended by its age."""
    return now_s - used_s > IDLE_S or now_s - began_s > LIFE_S


class KeptLogins(OrderedDict[bytes, Login]):
    """Logins by a hash of their secret, the longest idle first.

    Who uses one moves it to the end.
    """

    def add(self, key: bytes, login: Login, most: int) -> None:
        """Keep a login; of more than ``most`` the longest idle give way."""
        self[key] = login
        while len(self) > most:
            self.popitem(last=False)

    def make_room(self, is_own: Callable[[Login], bool], most: int) -> None:
        """Let the longest idle of one user give way, so that with another they are ``most``."""
        own = [key for key, login in self.items() if is_own(login)]
        for key in own[: max(0, len(own) + 1 - most)]:
            del self[key]
