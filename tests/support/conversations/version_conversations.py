# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of tests that run a feature in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message

if TYPE_CHECKING:
    from headrace.client import blocking

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
every = pytest.mark.parametrize("version", VERSIONS)
Name = Callable[..., str]
ONCE: dict[str, Any] = {"x-message-deduplication": 1}
IDS = "x-deduplication-header"


def in_version(url: str, version: str) -> str:
    """The URL for a version."""
    return f"{url}{'&' if '?' in url else '?'}version={version}"


def said(word: str, header: str = "k", **more: Any) -> Message:
    """A message whose body is a word: a key, which is in a header, and a priority."""
    headers = {header: word[0], **more} if word[0] != "-" else more
    return Message(word.encode(), priority=int(word[1]), headers=headers)


def taken(channel: blocking.Channel, queue: str, *, hold: bool = False) -> str:
    """Return the messages of a queue in order until it is empty; it may be held."""
    found = []
    while (delivery := channel.get(queue)) is not None:
        found.append(delivery.body.decode())
        if not hold:
            delivery.ack()
    return " ".join(found)


def listed(value: Any) -> list[Any]:
    """An array; the tables of 0-8 and 0-9 have tables with numbers instead."""
    return list(value.values()) if isinstance(value, dict) else value
