# SPDX-License-Identifier: Apache-2.0
"""Arguments of consumers and bindings: selectors, no-local, priority, browsing, replay.

The round in which consumers take turns, by priority or with a single active consumer, is in
`headrace.model.queue.destination`; a consumer's timeout is the gateway's
(``gateway/messages/consumer_timeout.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.no_local import has_no_local
from headrace.model.arguments.values import parse_integer, type_name
from headrace.model.errors import InvalidArgument
from headrace.model.selector import Selector, compile_selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.contents import Contents
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer

SELECTORS = ("x-filter-jms-selector", "x-apache-selector", "x-selector")
NO_LOCAL = "x-qpid-no-local"
NO_CONSUME = "x-filter-no-consume"
AUTO_CLOSE = "x-filter-auto-close"
PRIORITY = "x-priority"
REPLAY = "x-qpid-replay-period"  # The age of a browser's first message in seconds; 0 skips all.
REPLAY_MAX_S = 999_999_999  # About 30 years.

_WORDS = {"true": True, "false": False}


def read_selector(arguments: Mapping[str, object], subject: str) -> Selector | None:
    """Return the selector in the arguments; None if there is none, or it is blank.

    ``subject`` names the queue or exchange in the error.

    Raises:
        InvalidArgument: the selector is malformed, or there are two.
    """
    selector_text: str | None = None
    for name in SELECTORS:
        if name not in arguments:
            continue
        text = arguments[name]
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if not isinstance(text, str):
            raise InvalidArgument(f"invalid arg '{name}' for {subject}: expected a string")
        if selector_text is not None and text != selector_text:
            raise InvalidArgument(
                f"invalid arg '{name}' for {subject}: another argument has a different selector"
            )
        selector_text = text
    if selector_text is None or not selector_text.strip():
        return None
    try:
        return compile_selector(selector_text)
    except InvalidArgument as error:
        name = next(name for name in SELECTORS if name in arguments)
        raise InvalidArgument(f"invalid arg '{name}' for {subject}: {error.text}") from None


def read_boolean(arguments: Mapping[str, object], name: str, subject: str) -> bool:
    """Return True if a boolean argument is set; it may be ``true``, ``false``, 1 or 0 as well.

    Raises:
        InvalidArgument: the argument is not a boolean.
    """
    value = arguments.get(name, False)
    if isinstance(value, str):
        value = _WORDS.get(value.lower(), value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise InvalidArgument(f"invalid arg '{name}' for {subject}: expected a boolean")


def read_priority(arguments: Mapping[str, object], subject: str) -> int:
    """Return the priority of a consumer, limited to 32 bits.

    Raises:
        InvalidArgument: the priority is not an integer.
    """
    value = arguments.get(PRIORITY, 0)
    priority = parse_integer(value)
    if priority is None:
        error = f'"expected integer, got {type_name(value)}"'
        raise InvalidArgument(f"invalid arg '{PRIORITY}' for {subject}: {error}")
    return max(-(2**31), min(2**31 - 1, priority))


def replay_period(arguments: Mapping[str, object], subject: str) -> int | None:
    """Return the replay period in seconds, which clients of Broker-J set; None if there is none.

    Raises:
        InvalidArgument: the value is not a number of seconds.
    """
    value = arguments.get(REPLAY)
    if value is None:
        return None
    period_s = parse_integer(value)
    if period_s is None or not 0 <= period_s <= REPLAY_MAX_S:
        raise InvalidArgument(
            f"invalid arg '{REPLAY}' for {subject}: expected 0 to {REPLAY_MAX_S} seconds"
        )
    return period_s


class RepublishedHeaders:
    """The headers of a message that the broker republishes, as exchanges and selectors see them."""

    __slots__ = ("_contents", "_headers", "_message")

    def __init__(
        self, headers: Mapping[str, object], message: Message, contents: Contents | None
    ) -> None:
        """``headers`` are the new headers; ``contents`` reads the other properties."""
        self._headers = headers
        self._message = message
        self._contents = contents

    def __call__(self) -> Mapping[str, object]:
        return self._headers

    def values(self) -> RepublishedHeaders:
        """Return the headers and properties, as selectors read them."""
        return self

    def get(self, name: str, /) -> object:
        """Return a header or property; None if there is none."""
        value = self._headers.get(name)
        if value is None and self._contents is not None and self._message.data is not None:
            value = self._contents.values(self._message).get(name)
        return value


class ConsumerFilter:
    """The filter, priority and mode of a consumer, read from its arguments."""

    __slots__ = (
        "auto_close",
        "is_browser",
        "no_local",
        "priority",
        "replays",
        "selector",
        "subject",
    )

    def __init__(self, arguments: Mapping[str, object], subject: str) -> None:
        """Read the arguments of a consumer; ``subject`` names its queue.

        Raises:
            InvalidArgument: an argument is malformed.
        """
        self.priority = read_priority(arguments, subject)
        self.selector = read_selector(arguments, subject)
        self.no_local = read_boolean(arguments, NO_LOCAL, subject)
        self.is_browser = read_boolean(arguments, NO_CONSUME, subject)
        self.auto_close = read_boolean(arguments, AUTO_CLOSE, subject)
        self.replays = replay_period(arguments, subject) is not None
        self.subject = subject

    def apply(self, consumer: Consumer) -> None:
        """Set the attributes of a consumer, before it is added to its queue.

        Raises:
            InvalidArgument: a consumer that does not browse has a replay period.
        """
        if self.replays and not consumer.is_browser and not consumer.queue.is_stream:
            raise InvalidArgument(
                f"invalid arg '{REPLAY}' for {self.subject}: only consumers that browse may have it"
            )
        consumer.priority = self.priority
        consumer.selector = self.selector
        consumer.auto_close = self.auto_close
        queue = consumer.queue
        if self.no_local or (not queue.is_stream and has_no_local(queue.arguments)):
            consumer.no_local = True
        if consumer.no_local or self.selector is not None or self.auto_close:
            consumer.is_filtering = True
            consumer.is_selective = True
