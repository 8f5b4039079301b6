# SPDX-License-Identifier: Apache-2.0
"""The exchange ``qmf.default.topic``, with the broker's events in QMF's format.

An event of the virtual host is a message with a list of one map. Its routing key is
``agent.ind.event.<package>.<event>.<severity>.<agent>``, with ``_`` in place of the dots of a part.
The exchange listens to the broker's events only while a binding may match one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.gateway.requests.requests import make_message
from headrace.model.exchange.topic import TopicExchange
from headrace.protocol.codec_0_x import BasicProperties
from headrace.server.config.json_values import as_json
from headrace.server.observe.event_exchange import EventPublisher
from headrace.server.qmf.objects import NS_PER_MS, PACKAGE
from headrace.server.qmf.reply import LIST, TOPIC
from headrace.wire.errors import MalformedError
from headrace.wire.types_0_10 import encode_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.events import Event, Events
    from headrace.model.exchange.binding import Binding
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.wire.table import Table

log = logging.getLogger(__name__)

FIRST_WORDS = ("agent", "*", "#")  # The first words of binding keys that may match an event.
INFORM = 6  # The severity of all events.
SEVERITY = "info"  # The name of that severity in routing keys.

# For each kind of the broker's events: its name in QMF, and the facts by their names in QMF.
KINDS: dict[str, tuple[str, Mapping[str, str]]] = {
    "queue.created": (
        "queueDeclare",
        {
            "qName": "name",
            "durable": "durable",
            "excl": "exclusive",
            "autoDel": "auto_delete",
            "args": "arguments",
        },
    ),
    "queue.deleted": ("queueDelete", {"qName": "name"}),
    "exchange.created": (
        "exchangeDeclare",
        {
            "exName": "name",
            "exType": "type",
            "durable": "durable",
            "autoDel": "auto_delete",
            "args": "arguments",
        },
    ),
    "exchange.deleted": ("exchangeDelete", {"exName": "name"}),
    "binding.created": (
        "bind",
        {
            "exName": "source_name",
            "qName": "destination_name",
            "key": "routing_key",
            "args": "arguments",
        },
    ),
    "binding.deleted": (
        "unbind",
        {"exName": "source_name", "qName": "destination_name", "key": "routing_key"},
    ),
    "consumer.created": (
        "subscribe",
        {"qName": "queue", "dest": "consumer_tag", "excl": "exclusive", "args": "arguments"},
    ),
    "consumer.deleted": ("unsubscribe", {"qName": "queue", "dest": "consumer_tag"}),
    "queue.alert": (
        "queueThresholdExceeded",
        {"qName": "name", "msgDepth": "messages", "byteDepth": "message_bytes"},
    ),
    "connection.created": ("clientConnect", {"rhost": "name"}),
    "connection.closed": ("clientDisconnect", {"rhost": "name"}),
}
CREATED = {"queueDeclare", "exchangeDeclare"}


class EventTopic(TopicExchange):
    """A topic exchange that listens to the broker's events while a binding may match."""

    fixed = True

    def __init__(self, vhost: VirtualHost, events: Events, agent: str) -> None:
        super().__init__(TOPIC)
        self._publisher = QmfEventPublisher(vhost, events, agent)
        self._event_bindings = 0  # Bindings that may match an event.

    def bind(self, binding: Binding) -> bool:
        matches, new = may_match(binding), False
        if matches:
            self._publisher.set_listening(True)  # Before the binding is added: it may be refused.
        try:
            new = super().bind(binding)
        finally:
            self._event_bindings += matches and new
            self._publisher.set_listening(self._event_bindings > 0)
        return new

    def unbind(self, binding: Binding) -> bool:
        gone = super().unbind(binding)
        if gone and may_match(binding):
            self._event_bindings -= 1
            self._publisher.set_listening(self._event_bindings > 0)
        return gone

    def close(self) -> None:
        """Stop publishing events, as the virtual host stops."""
        self._publisher.close()


def may_match(binding: Binding) -> bool:
    """Return True if a binding may match an event."""
    return binding.routing_key.partition(".")[0] in FIRST_WORDS


class QmfEventPublisher(EventPublisher):
    """Publishes the events of one virtual host in QMF's format."""

    def __init__(self, vhost: VirtualHost, events: Events, agent: str) -> None:
        super().__init__(vhost, events)
        self.agent = agent
        self._key = ".".join(part.replace(".", "_") for part in agent.split(":"))

    def queue_event(self, event: Event) -> None:
        if event.kind in KINDS and event.facts.get("vhost") == self.vhost.name:
            super().queue_event(event)

    def publish(self, event: Event) -> None:
        name, facts = KINDS[event.kind]
        package = PACKAGE.replace(".", "_")
        key = f"agent.ind.event.{package}.{name}.{SEVERITY}.{self._key}"
        queues = self.vhost.route(TOPIC, key, dict).queues
        if not queues:
            return
        event_facts = event.facts
        values: dict[str, object] = {"user": event_facts["user_who_performed_action"]}
        values |= {
            qmf_name: as_json(event_facts[fact])
            for qmf_name, fact in facts.items()
            if fact in event_facts
        }
        if name in CREATED:
            values["disp"] = "created"
        indication: dict[str, object] = {
            "_schema_id": {"_package_name": PACKAGE, "_class_name": name, "_type": "_event"},
            "_values": values,
            "_timestamp": event.at_ms * NS_PER_MS,
            "_severity": INFORM,
        }
        try:
            body = encode_list([indication])
        except (MalformedError, ValueError):
            values.pop("args", None)
            body = encode_list([indication])
        headers: Table = {
            "method": "indication",
            "qmf.opcode": "_data_indication",
            "qmf.content": "_event",
            "qmf.agent": self.agent,
        }
        properties = BasicProperties(content_type=LIST, headers=headers, app_id="qmf2")
        self.vhost.deliver(make_message(TOPIC, key, properties, body), queues, False)
