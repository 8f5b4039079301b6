# SPDX-License-Identifier: Apache-2.0
"""A broker's features beyond the standard, from its server properties in connection.start.

A broker closes the connection when it gets an unknown extension. So an extension is sent only to
brokers that announce it: by a capability, by being a Headrace, which has them all, or by the
properties with which Qpid announces its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.client.errors import UsageError
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicNack,
    ConfirmSelect,
    ExchangeBind,
    ExchangeUnbind,
    MethodBase,
)
from headrace.spec.tables import V0_8, Version

if TYPE_CHECKING:
    from headrace.wire.table import Value

BINDINGS = "exchange_exchange_bindings"

# The methods of 0-9-1 that are extensions: the capability, what they do, and what to do instead.
METHODS: dict[type[MethodBase], tuple[str, str, str]] = {
    ConfirmSelect: (
        "publisher_confirms",
        "publisher confirms",
        "open the channel with confirm=False, or use a transaction",
    ),
    ExchangeBind: (BINDINGS, "bindings between exchanges", "bind queues to both exchanges"),
    ExchangeUnbind: (BINDINGS, "bindings between exchanges", "bind queues to both exchanges"),
    BasicNack: ("basic.nack", "basic.nack", "reject the deliveries one by one"),
}
EXTENSIONS = frozenset({*METHODS, BasicConsume})  # The methods that `check` handles.


def is_headrace(properties: Mapping[str, Value]) -> bool:
    """Return True if these are the server properties of a Headrace, in any version."""
    return isinstance(properties.get("headrace_id"), str)


def announces(properties: Mapping[str, Value], capability: str) -> bool:
    """Return True if a broker's server properties list a capability.

    Headrace has those it knows, and names them where the version has more types than texts.
    """
    capabilities = properties.get("capabilities")
    if isinstance(capabilities, dict):
        return capabilities.get(capability) is True
    if capability == "publisher_confirms" and is_qpid(properties):
        return properties.get("qpid.confirmed_publish_supported") == "true"
    return is_headrace(properties)


def renews_secrets(properties: Mapping[str, Value]) -> bool:
    """Return True if a broker accepts new credentials on open connections of any version."""
    extensions = properties.get("headrace_extensions")
    return isinstance(extensions, str) and "connection.update-secret" in extensions.split()


def is_qpid(properties: Mapping[str, Value]) -> bool:
    """Return True if these are the server properties of a Qpid broker."""
    if is_headrace(properties):
        return False
    product = properties.get("product")
    named = isinstance(product, str) and "qpid" in product.lower()
    return named or any(name.startswith("qpid.") for name in properties)


def check(
    address: str, version: Version, properties: Mapping[str, Value], method: MethodBase
) -> None:
    """Check that a method is not an extension that the broker does not announce.

    Raises:
        UsageError: the broker does not announce the method; the text names an alternative.
    """
    if isinstance(method, BasicConsume):
        # In 0-8 the field appends a table, which only its inventors and Headrace expect.
        is_read = version is not V0_8 or is_headrace(properties) or is_qpid(properties)
        if method.arguments and not is_read:
            raise UsageError(
                f"{address} takes no arguments of consumers in AMQP 0-8 "
                f"({', '.join(method.arguments)}): use version=0-9-1"
            )
        return
    capability, what, instead = METHODS[type(method)]
    if not announces(properties, capability):
        raise UsageError(f"{address} does not announce {what}: {instead}")
