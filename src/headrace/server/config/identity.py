# SPDX-License-Identifier: Apache-2.0
"""Server properties: the description of the broker in connection.start."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.node_name import node_name

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings

# The extensions, in one text, that connections of every version announce.
EXTENSIONS = "connection.update-secret"
# The capabilities, by their names in 0-9-1.
CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
    "connection.update_secret": True,
    # Extensions of Headrace:
    "stream_offset_query": True,  # The argument x-stream-offset-query of queue.declare.
    "stream_ranges": True,  # Arguments of basic.consume, such as x-stream-last, x-stream-filter.
}
# Without this property Qpid's JMS client declares temporary queues that end with their first
# consumer.
QPID_PROPERTIES = {"qpid.queue_lifetime_supported": "true"}


# Keeps 0-9-1/s010, 0-9/connection.start.server-properties#required-fields, 0-10/s008.
def server_properties(
    product: str, version: str, identity: str, *, per_consumer_qos: bool
) -> dict[str, object]:
    """Return the server properties; an empty version stands for this version."""
    return {
        "host": platform.node(),
        "product": product,
        "version": version or __version__,
        "platform": f"Python {platform.python_version()}",
        "copyright": "Copyright the Headrace developers",
        "information": "Licensed under the Apache License 2.0",
        "cluster_name": node_name(),
        "headrace_id": identity,  # A property of Headrace: the id of the data directory.
        "headrace_extensions": EXTENSIONS,
        **QPID_PROPERTIES,
        "capabilities": {**CAPABILITIES, "per_consumer_qos": per_consumer_qos},
    }


def introduction(settings: Settings, identity: str, *, tls: bool = False) -> dict[str, object]:
    """Return the server properties that one kind of port announces."""
    product, version = settings.product, settings.product_version
    if tls:
        product = settings.tls_product or product
        version = settings.tls_product_version or version
    return server_properties(
        product, version, identity, per_consumer_qos=not settings.specification_qos
    )
