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

EXCHANGE_BINDINGS = "exchange_exchange_bindings"

# The extension methods of 0-9-1, each with its capability, its purpose, and an alternative to it.
EXTENSION_METHODS: dict[type[MethodBase], tuple[str, str, str]] = {
    ConfirmSelect: (
        "publisher_confirms",
        "publisher confirms",
        "open the channel with confirm=False, or use a transaction",
    ),
    ExchangeBind: (
        EXCHANGE_BINDINGS,
        "bindings between exchanges",
        "bind queues to both exchanges",
    ),
    ExchangeUnbind: (
        EXCHANGE_BINDINGS,
        "bindings between exchanges",
        "bind queues to both exchanges",
    ),
    BasicNack: ("basic.nack", "basic.nack", "reject the deliveries one by one"),
}
CHECKED_METHODS = frozenset({*EXTENSION_METHODS, BasicConsume})  # Those of `check_announced`.


def is_headrace(properties: Mapping[str, Value]) -> bool:
    """Return True if these are the server properties of a Headrace, in any version."""
    return isinstance(properties.get("headrace_id"), str)


def announces(properties: Mapping[str, Value], capability: str) -> bool:
    """Return True if a broker's server properties announce a capability.

    In versions whose server properties are only texts, Headrace announces all of them by its id.
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
    has_product = isinstance(product, str) and "qpid" in product.lower()
    return has_product or any(name.startswith("qpid.") for name in properties)


def check_announced(
    address: str, version: Version, properties: Mapping[str, Value], method: MethodBase
) -> None:
    """Check that a method is not an extension that the broker does not announce.

    Raises:
        UsageError: the broker does not announce the method; the text names an alternative.
    """
    if isinstance(method, BasicConsume):
        # In 0-8 the table of arguments is an extension, which Qpid and Headrace decode.
        is_read = version is not V0_8 or is_headrace(properties) or is_qpid(properties)
        if method.arguments and not is_read:
            raise UsageError(
                f"{address} takes no arguments of consumers in AMQP 0-8 "
                f"({', '.join(method.arguments)}): use version=0-9-1"
            )
        return
    capability, feature, alternative = EXTENSION_METHODS[type(method)]
    if not announces(properties, capability):
        raise UsageError(f"{address} does not announce {feature}: {alternative}")
