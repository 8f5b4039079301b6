# SPDX-License-Identifier: Apache-2.0
"""Unknown arguments of queues, exchanges and bindings: refused, logged or ignored.

Each virtual host has a mode (:class:`headrace.model.policy.rules.Rules`):

- ``default``: refuse names with a meaning for another broker, since ignoring them would change
  behaviour silently; ignore all others, as other brokers do. A likely misspelling is logged. In
  0-10, ``default`` means ``refuse`` if ``specification_arguments`` is set (``Topology._mode``).
- ``refuse``: refuse every unknown name.
- ``log``: log each unknown name once.
- ``ignore``: ignore unknown names.

With ``log`` and ``ignore`` an alias that contradicts Headrace's argument is ignored. Invalid
values, and arguments of another queue type, are always refused.
"""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING

from headrace.model.arguments.aliases import ALTERNATES, QUEUE_ALIASES, translate_aliases
from headrace.model.arguments.consumer import read_boolean
from headrace.model.arguments.no_local import QUEUE_ARGUMENT as NO_LOCAL
from headrace.model.arguments.values import NUMBERS, QUEUE_ARGUMENTS, parse_integer
from headrace.model.errors import InvalidArgument, NotUnderstood
from headrace.model.policy.rules import DEFAULT, LOG, REFUSE

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

log = logging.getLogger(__name__)

NAMES_LOGGED_MAX = 1024  # Names logged by one process; further ones are ignored silently.
NAME_SHOWN_MAX = 255
DEAD_LETTERS = "x-qpid-dlq-enabled"  # True or 1 also declares a queue for dead letters.

#: Names without effect here: clusters, files of other brokers, descriptions.
HARMLESS = frozenset(
    {
        "qpid.alert_count_down",
        "qpid.alert_size_down",
        "qpid.cluster_durable",
        "qpid.file_count",
        "qpid.file_size",
        "qpid.max_pages_loaded",
        "qpid.page_factor",
        "qpid.paging",  # Every queue pages out when memory is short.
        "qpid.persist_last_node",
        "qpid.replicate",
        "qpid.trace.exclude",
        "qpid.trace.id",
        "x-cancel-on-ha-failover",
        "x-consumer-disconnected-timeout",  # A disconnected consumer is gone here.
        "x-ha-nodes",
        "x-ha-policy",
        "x-ha-policy-params",
        "x-qpid-description",
        "x-queue-master-locator",
        "x-stream-filter-size-bytes",
    }
)

#: Names with a meaning for some broker, on which a client may rely. Headrace's arguments are looked
#: up before.
MEANINGFUL = frozenset(
    {
        "qpid.LVQ_key",
        "qpid.browse-only",
        "qpid.default-message-group",
        "qpid.ensure_nondestructive_consumers",
        "qpid.exclusivity_policy",
        "qpid.fairshare",
        "qpid.group_header_key",
        "qpid.last_value_queue",
        "qpid.last_value_queue_key",
        "qpid.last_value_queue_no_browse",
        "qpid.lifetime-policy",
        "qpid.lifetime_policy",
        "qpid.no-group",
        "qpid.queue_sort_key",
        "qpid.shared_msg_group",
        "x-cache-size",
        "x-cache-ttl",
        "x-consumer-timeout",
        "x-deduplication-header",
        "x-delayed-retry-max",
        "x-delayed-retry-min",
        "x-delayed-retry-type",
        "x-message-deduplication",
        "x-qpid-capacity",
        "x-qpid-flow-resume-capacity",
        "x-qpid-maximum-message-age",
        "x-qpid-maximum-message-count",
        "x-qpid-maximum-message-size",
        "x-qpid-maximum-queue-depth",
        "x-qpid-minimum-alert-repeat-gap",
        "x-qpid-replay-period",
    }
)
MEANINGFUL_PREFIX = "qpid.fairshare-"

#: Such names of exchange arguments.
EXCHANGE_MEANINGFUL = frozenset(
    {
        "hash-header",
        "hash-property",
        "qpid.exclusive-binding",
        "qpid.ive",
        "qpid.msg_sequence",
        "x-algorithm",
        "x-cache-size",
        "x-cache-ttl",
        "x-deduplication-header",
        "x-delayed-type",
        "x-hash-on",
        "x-message-deduplication",
        "x-recent-history-length",
        "x-recent-history-no-store",
    }
)

#: Such names of binding arguments, for exchanges that read none.
BINDING_MEANINGFUL = frozenset(
    {
        "x-apache-selector",
        "x-filter-jms-selector",
    }
)

_logged: set[str] = set()


def dead_letter_queue(queue: str) -> str:
    """Return the dead-letter queue of a queue with ``x-qpid-dlq-enabled``."""
    return f"{queue}_DLQ"


def translate_arguments(
    arguments: Mapping[str, object], subject: str, mode: str, queue: str = ""
) -> Mapping[str, object]:
    """Return the arguments of a queue with aliases translated; unknown ones are unchanged.

    ``subject`` names the queue in errors, ``queue`` is its name.

    Raises:
        InvalidArgument: an argument is refused; the text names it.
    """
    arguments = parse_numbers(arguments)
    if all(name in QUEUE_ARGUMENTS for name in arguments):
        return arguments

    def refuse_malformed(name: str, text: str) -> None:
        raise InvalidArgument(f"invalid arg '{name}' for {subject}: {text}")

    def refuse_contradiction(name: str, ours: str) -> None:
        if mode in (DEFAULT, REFUSE):
            refuse_malformed(name, f"it contradicts '{ours}'")
        if mode == LOG:
            _log_once(name, f"{subject}: argument '{name}' is ignored: it contradicts '{ours}'")

    if arguments.get(DEAD_LETTERS) == 1:
        if not queue:
            refuse_malformed(DEAD_LETTERS, "the queue has no name")
        arguments = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead_letter_queue(queue),
            **arguments,
        }
    elif arguments.get(DEAD_LETTERS, 0) != 0:
        refuse_malformed(DEAD_LETTERS, "expected a boolean")
    translated = translate_aliases(arguments, QUEUE_ALIASES, refuse_malformed, refuse_contradiction)
    for name in arguments:
        if name in QUEUE_ARGUMENTS or name in QUEUE_ALIASES or name == DEAD_LETTERS:
            continue
        if name == NO_LOCAL:
            read_boolean(arguments, name, subject)
            continue
        if name not in HARMLESS:
            meaningful = name in MEANINGFUL or name.startswith(MEANINGFUL_PREFIX)
            _judge(name, subject, mode, meaningful)
    return translated


def parse_numbers(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Return the arguments with numbers instead of texts of digits."""
    texts = [name for name in NUMBERS & arguments.keys() if isinstance(arguments[name], str)]
    if not texts:
        return arguments
    numbers = {name: parse_integer(arguments[name]) for name in texts}
    return {**arguments, **{name: number for name, number in numbers.items() if number is not None}}


def check_exchange_arguments(
    arguments: Mapping[str, object], allowed: Container[str], subject: str, mode: str
) -> None:
    """Refuse, log or ignore the arguments that an exchange type does not have.

    Raises:
        NotUnderstood: an argument is refused; the text names it.
        InvalidArgument: two names of the alternate have different values.
    """
    for name in arguments:
        if name not in allowed:
            meaningful = name in EXCHANGE_MEANINGFUL
            _judge(name, subject, mode, meaningful, "its type has no such argument")
    alternates = [name for name in ALTERNATES if name in arguments]
    for name in alternates[1:]:
        if arguments[name] != arguments[alternates[0]] and mode in (DEFAULT, REFUSE):
            text = f"invalid arg '{name}' for {subject}: it contradicts '{alternates[0]}'"
            raise InvalidArgument(text)


def check_binding_arguments(
    arguments: Mapping[str, object], allowed: Container[str], subject: str, mode: str
) -> None:
    """Refuse, log or ignore the arguments that a binding's exchange does not read.

    Raises:
        NotUnderstood: an argument is refused; the text names it.
    """
    for name in arguments:
        if name not in allowed:
            meaningful = name in BINDING_MEANINGFUL
            _judge(name, subject, mode, meaningful, "an exchange of this type does not look at it")


# Keeps 0-10/s157, 0-10/s170, 0-10/s190.
def _judge(name: str, subject: str, mode: str, meaningful: bool, elsewhere: str = "") -> None:
    """Refuse, log or ignore an unknown name.

    ``elsewhere`` is the reason if other brokers have it.
    """
    short_name = name if len(name) <= NAME_SHOWN_MAX else name[:NAME_SHOWN_MAX] + "…"
    reason = elsewhere if meaningful and elsewhere else "this broker does not have it"
    if mode == REFUSE or (mode == DEFAULT and meaningful):
        raise NotUnderstood(f"invalid arg '{short_name}' for {subject}: {reason}")
    if mode == LOG:
        _log_once(name, f"{subject}: argument '{short_name}' is ignored: {reason}")
    elif mode == DEFAULT and name not in _logged and subject.startswith("queue"):
        near = difflib.get_close_matches(name[:64], [*QUEUE_ARGUMENTS, *QUEUE_ALIASES], 1, 0.85)
        if near:
            text = f"{subject}: argument '{short_name}' is ignored; '{near[0]}' may be meant"
            _log_once(name, text)


def _log_once(key: str, text: str) -> None:
    if key not in _logged and len(_logged) < NAMES_LOGGED_MAX:
        _logged.add(key)
        log.warning("%s", text)
