# SPDX-License-Identifier: Apache-2.0
"""Arguments of declarations: known names, valid values, equivalence of two declarations.

The error texts are RabbitMQ's, since clients' test suites match them literally.
:mod:`headrace.model.policy.unknown_arguments` handles unknown names.
:mod:`headrace.model.queue_kinds.apply_arguments` applies the values to a queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from headrace.model.arguments.canonical import canonical
from headrace.model.arguments.expiration import EXPIRY_MS_MAX
from headrace.model.errors import InvalidArgument, PreconditionFailed

PRIORITY_MAX = 255
CACHE_SIZE_MAX = 1_000_000  # Message ids in a deduplication cache.
LEVELS_MAX = 10  # The number of priorities in AMQP 0-10.
AGE_MS_MAX = 1 << 50  # About 35,000 years; a greater age is replaced by this one.

# Returns the error of a value, or None; the second parameter is the table of all arguments.
Check = Callable[[object, Mapping[str, object]], str | None]


def type_name(value: object) -> str:
    """Return the wire type of a table value as error texts name it."""
    wire_type: str | None = getattr(value, "WIRE_TYPE", None)  # Set for unusual widths.
    if wire_type is not None:
        return wire_type
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "longstr"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, Decimal):
        return "decimal"
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, Mapping):
        return "table"
    return "void" if value is None else "array"


def _integer(value: object, arguments: Mapping[str, object]) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return f'"expected integer, got {type_name(value)}"'


def _not_negative(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _integer(value, arguments)
    if error is None and isinstance(value, int) and value < 0:
        return f"{{value_negative,{value}}}"
    return error


def _positive(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _not_negative(value, arguments)
    if error is None and value == 0:
        return "{value_zero,0}"
    return error


def _ttl(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _not_negative(value, arguments)
    if error is None and isinstance(value, int) and value > EXPIRY_MS_MAX:
        return f"{{value_too_large,{value}}}"
    return error


def _expires(value: object, arguments: Mapping[str, object]) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return "{value_zero,0}"
    return _ttl(value, arguments)


def _priority(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _not_negative(value, arguments)
    if error is None and isinstance(value, int) and value > PRIORITY_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return error


def _cache_size(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _positive(value, arguments)
    if error is None and isinstance(value, int) and value > CACHE_SIZE_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return error


def _levels(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _positive(read_number(value), arguments)
    if error is None and number(value) > LEVELS_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return error


def _delivery_limit(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _integer(value, arguments)
    if error is None and isinstance(value, int) and value < -1:
        return f"{{value_negative,{value}}}"
    return error


def _boolean(value: object, arguments: Mapping[str, object]) -> str | None:
    if isinstance(value, int) and value in (0, 1):  # 0-8 and 0-9 tables have no booleans.
        return None
    return f"{{unacceptable_type,{type_name(value)}}}"


def _string(value: object, arguments: Mapping[str, object]) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)  # 64 bits have no more digits.


def parse_integer(value: object) -> int | None:
    """Return an integer, or the integer in a text of digits; None for any other value.

    Qpid's address strings quote integers (``x-priority: '5'``), and 0-8 tables have few number
    types. A text of digits counts as an integer from every client; RabbitMQ refuses it.
    """
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> int:
    """Return a checked value as a number; a switch that is on counts as 1.

    Qpid's clients also send numbers and booleans as text.
    """
    numeric = read_number(value)
    return numeric if isinstance(numeric, int) else int(bool(numeric))


def read_number(value: object) -> object:
    """Return a number, or the number in a text; any other value unchanged."""
    integer = parse_integer(value)
    if integer is not None:
        return integer
    return 0 if isinstance(value, str) and value.lower() in ("", "false") else value


def as_list(value: object) -> object:
    """Return a value with a table with the keys 1, 2, … as a list: 0-8 and 0-9 have no arrays."""
    if isinstance(value, Mapping):
        keys = [str(number) for number in range(1, len(value) + 1)]
        if value.keys() == set(keys):
            return [value[key] for key in keys]
    return value


def _count(value: object, arguments: Mapping[str, object]) -> str | None:
    return _not_negative(read_number(value), arguments)


def _switch(value: object, arguments: Mapping[str, object]) -> str | None:
    if isinstance(value, (bool, int)) or (
        isinstance(value, str) and value.lower() in ("true", "false", "0", "1", "")
    ):
        return None
    return f"{{unacceptable_type,{type_name(value)}}}"


def _name(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _string(value, arguments)
    return "empty" if error is None and not value else error


def _dead_letter_key(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _string(value, arguments)
    if error is None and "x-dead-letter-exchange" not in arguments:
        return "routing_key_but_no_dlx_defined"
    return error


def _one_of(values: Iterable[str], otherwise: str) -> Check:
    allowed = frozenset(values)

    def check(value: object, arguments: Mapping[str, object]) -> str | None:
        error = _string(value, arguments)
        if error is None and value not in allowed:
            return otherwise.format(value)
        return error

    return check


def _version(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _not_negative(value, arguments)
    if error is None and value not in (1, 2):
        return f"\"unsupported queue version '{value}'\""
    return error


_AGE = re.compile(r"([0-9]{1,9})([YMDhms])", re.ASCII)
_AGE_MS = {
    "Y": 31_536_000_000,
    "M": 2_592_000_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}


def age_ms(text: str) -> int | None:
    """Return an age such as ``7D`` in milliseconds; None if it is malformed."""
    match = _AGE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        return None
    return min(int(match[1]) * _AGE_MS[match[2]], AGE_MS_MAX)


def _age(value: object, arguments: Mapping[str, object]) -> str | None:
    error = _string(value, arguments)
    if isinstance(value, str) and age_ms(value) is None:
        return "invalid_max_age"
    return error


QUEUE_ARGUMENTS: dict[str, Check] = {
    "x-queue-type": _one_of(("classic", "quorum", "stream"), "\"unsupported queue type '{}'\""),
    "x-expires": _expires,
    "x-message-ttl": _ttl,
    "x-dead-letter-exchange": _string,
    "x-dead-letter-routing-key": _dead_letter_key,
    "alternate-exchange": _string,
    "x-dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _priority,
    "qpid.priorities": _levels,
    "x-overflow": _one_of(
        (
            "drop-head",
            "reject-publish",
            "reject-publish-dlx",
            "ring-strict",
            "self-destruct",
            "flow-to-disk",
            "flow-control",
            "none",
        ),
        "invalid_overflow",
    ),
    "x-queue-mode": _one_of(("default", "lazy"), "\"unsupported queue mode '{}'\""),
    "x-queue-version": _version,
    "x-single-active-consumer": _boolean,
    "x-delivery-limit": _delivery_limit,
    "x-consumer-timeout": _not_negative,
    "x-delayed-retry-type": _one_of(
        ("all", "failed", "returned", "disabled"), "invalid_delayed_retry_type"
    ),
    "x-delayed-retry-min": _positive,
    "x-delayed-retry-max": _positive,
    "x-delayed-retry-multiplier": _positive,
    "x-message-deduplication": _boolean,
    "x-cache-size": _cache_size,
    "x-cache-ttl": _ttl,
    "x-cache-persistence": _one_of(("disk", "memory"), "\"unsupported persistence '{}'\""),
    "x-deduplication-header": _string,
    "x-quorum-initial-group-size": _positive,
    "x-quorum-target-group-size": _positive,
    "x-max-age": _age,
    "x-stream-max-segment-size-bytes": _not_negative,
    "x-local-max-length-bytes": _not_negative,
    "x-local-max-age": _age,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _one_of(
        ("client-local", "balanced", "random", "least-leaders"), "invalid_queue_locator_arg"
    ),
    "qpid.last_value_queue_key": _name,
    "qpid.last_value_queue": _switch,
    "qpid.last_value_queue_no_browse": _switch,
    "qpid.LVQ_key": _name,
    "qpid.queue_sort_key": _name,
    "qpid.group_header_key": _name,
    "qpid.shared_msg_group": _switch,
    "qpid.default-message-group": _string,
    "qpid.fairshare": _count,
    "x-qpid-fairshare": _count,
    **{f"qpid.fairshare-{level}": _count for level in range(LEVELS_MAX)},
    "holdOnPublishEnabled": _switch,
    "qpid.browse-only": _switch,
    "qpid.ensure_nondestructive_consumers": _switch,
    "qpid.lifetime_policy": _string,
    "qpid.lifetime-policy": _string,
    "qpid.exclusivity_policy": _string,
    "qpid.flow_stop_count": _count,
    "qpid.flow_stop_size": _count,
    "qpid.flow_resume_count": _count,
    "qpid.flow_resume_size": _count,
    "x-qpid-capacity": _count,
    "x-qpid-flow-resume-capacity": _count,
    "qpid.alert_count": _count,
    "qpid.alert_count_up": _count,
    "qpid.alert_size": _count,
    "qpid.alert_size_up": _count,
    "qpid.alert_repeat_gap": _count,
    "x-qpid-maximum-message-count": _count,
    "x-qpid-maximum-queue-depth": _count,
    "x-qpid-maximum-message-size": _count,
    "x-qpid-maximum-message-age": _count,
    "x-qpid-minimum-alert-repeat-gap": _count,
}

_NUMBERS = (
    *(_expires, _ttl, _not_negative, _positive, _priority, _cache_size, _delivery_limit, _version),
)
#: Arguments whose value is stored as a number even if it was sent as text.
NUMBERS = frozenset(name for name, check in QUEUE_ARGUMENTS.items() if check in _NUMBERS)
_STREAM_ONLY = frozenset(
    {
        *("x-max-age", "x-stream-max-segment-size-bytes"),
        *("x-local-max-length-bytes", "x-local-max-age"),
    }
)
_NOT_STREAM = frozenset(
    {
        *(name for name in QUEUE_ARGUMENTS if name.startswith("qpid.")),
        "x-qpid-fairshare",
        "holdOnPublishEnabled",
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "alternate-exchange",
        "x-dead-letter-strategy",
        "x-max-length",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-delivery-limit",
        "x-consumer-timeout",
        "qpid.priorities",
        "x-message-deduplication",
        "x-delayed-retry-type",
        "x-delayed-retry-min",
        "x-delayed-retry-max",
        "x-delayed-retry-multiplier",
    }
)

#: Arguments for stream readers and browsers only.
READER_ONLY = (
    "x-stream-offset",
    "x-stream-last",
    "x-stream-filter",
    "x-stream-match-unfiltered",
    "x-stream-offset-error",
    "x-stream-automatic-offset-tracking",
)
EXCHANGE_NAMES = ("alternate-exchange", "x-dead-letter-exchange")  # Their values name exchanges.
_EXCLUSIVE = (("x-max-priority", "qpid.priorities"),)  # Two names of the same setting.


def queue_type(arguments: Mapping[str, object]) -> str:
    """Return the queue type in these arguments."""
    kind = arguments.get("x-queue-type", "classic")
    return kind if isinstance(kind, str) else "classic"


def stores_all(arguments: Mapping[str, object]) -> bool:
    """Return True if a queue also stores transient messages."""
    return arguments.get("x-queue-type") == "quorum"


def check_reader_arguments(arguments: Mapping[str, object], subject: str, kind: str) -> None:
    """Refuse arguments that only stream readers may have; ``subject`` names the queue.

    A consumer with such an argument expects not to remove messages.

    Raises:
        InvalidArgument: a reader argument is present; the text names it.
    """
    for name in READER_ONLY:
        if name in arguments:
            raise InvalidArgument(
                f"invalid arg '{name}' for {subject} of queue type rabbit_{kind}_queue"
            )


def wrong_argument(name: str, value: object, subject: str, error: str) -> InvalidArgument:
    """Return the error for an invalid argument, in the words that clients match."""
    if name in EXCHANGE_NAMES and not isinstance(value, str):
        return InvalidArgument(f"invalid type '{type_name(value)}' for arg '{name}' in {subject}")
    return InvalidArgument(f"invalid arg '{name}' for {subject}: {error}")


def check_queue_arguments(arguments: Mapping[str, object], subject: str) -> None:
    """Refuse known arguments with invalid values; ``subject`` names the queue in the error."""
    for name, check in QUEUE_ARGUMENTS.items():
        if name in arguments:
            error = check(arguments[name], arguments)
            if error is not None:
                raise wrong_argument(name, arguments[name], subject, error)
    kind = queue_type(arguments)
    foreign = _NOT_STREAM if kind == "stream" else _STREAM_ONLY
    for name in arguments:
        if name in foreign:
            raise InvalidArgument(
                f"invalid arg '{name}' for {subject} of queue type rabbit_{kind}_queue"
            )

    for name, other in _EXCLUSIVE:
        if name in arguments and other in arguments:
            raise InvalidArgument(f"invalid arg '{other}' for {subject}: it contradicts '{name}'")
    min_ms, max_ms = arguments.get("x-delayed-retry-min"), arguments.get("x-delayed-retry-max")
    if isinstance(min_ms, int) and isinstance(max_ms, int) and min_ms > max_ms:
        raise InvalidArgument(
            f"invalid arg 'x-delayed-retry-min' for {subject}: {min_ms} is more than "
            f"'x-delayed-retry-max', {max_ms}"
        )
    if (
        arguments.get("x-dead-letter-strategy") == "at-least-once"
        and arguments.get("x-overflow") == "drop-head"
    ):
        raise InvalidArgument(
            f"invalid arg 'x-dead-letter-strategy' for {subject}: at-least-once contradicts "
            "x-overflow drop-head, which loses messages"
        )


def format_value(value: object) -> str:
    """Return the text of a table value for errors."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return str(int(value.timestamp()))
    return "undefined" if value is None else str(value)


def describe_value(value: object) -> str:
    """Return the text and type of a table value for errors."""
    return f"the value '{format_value(value)}' of type '{type_name(value)}'"


def assert_same_field(current: object, received: object, name: str, subject: str) -> None:
    """Refuse a declaration whose flag or type differs."""
    if current != received:
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {subject}: received "
            f"'{format_value(received)}' but current is '{format_value(current)}'"
        )


def _same_type(
    current: Mapping[str, object], received: Mapping[str, object], default_type: str
) -> bool:
    """Return True if two declarations, one without a queue type, are of the same type."""
    name = "x-queue-type"
    return current.get(name, received.get(name)) in (
        ("classic", default_type) if name in current else ("classic",)
    )


def assert_same_arguments(
    current: Mapping[str, object],
    received: Mapping[str, object],
    names: Iterable[str],
    subject: str,
    default_type: str = "classic",
) -> None:
    """Refuse a declaration if a known argument differs.

    A declaration without a queue type matches a classic queue and one of ``default_type``.
    """
    for name in names:
        is_current, is_received = name in current, name in received
        if not is_current and not is_received:
            continue
        if is_current and is_received:
            ours, theirs = current[name], received[name]
            if canonical(ours) == canonical(theirs):
                continue
            texts = f"'{format_value(theirs)}'", f"'{format_value(ours)}'"
        elif name == "x-queue-type" and _same_type(current, received, default_type):
            continue
        else:
            texts = (
                describe_value(received[name]) if is_received else "none",
                describe_value(current[name]) if is_current else "none",
            )
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {subject}: received {texts[0]} but current is "
            f"{texts[1]}"
        )
