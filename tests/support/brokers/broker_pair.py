# SPDX-License-Identifier: Apache-2.0
"""Two brokers with one data directory, of which one serves it: what one served, the other takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from headrace.testing import ChildBroker, LocalBroker

if TYPE_CHECKING:
    from pathlib import Path


class BrokerPair:
    """See the module. Both have a port of their own, known from the beginning."""

    def __init__(self, data: Path, *, processes: bool = False) -> None:
        kind = ChildBroker if processes else LocalBroker
        self.serving, self.other = kind(data), kind(data)

    def __enter__(self) -> Self:
        self.other.start()
        self.other.stop()
        self.serving.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.serving.__exit__(*error)

    @property
    def url(self) -> str:
        """One URL with both hosts, the first of which serves now."""
        both = f"{self.serving.host}:{self.serving.port},{self.other.host}:{self.other.port}"
        return f"amqp://guest:guest@{both}/"

    def leave(self) -> None:
        """Stop the broker that serves; kill it if it is a process."""
        if isinstance(self.serving, ChildBroker):
            self.serving.kill()
        else:
            self.serving.stop()
        self.serving, self.other = self.other, self.serving

    def move(self) -> None:
        """Have the other broker serve."""
        self.leave()
        self.serving.start()
