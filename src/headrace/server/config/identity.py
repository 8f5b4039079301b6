# SPDX-License-Identifier: Apache-2.0
"""What the broker says about itself in connection.start."""

import platform
from typing import Any

from headrace import __version__

# What every version says in one text that we know beside the standards.
EXTENSIONS = "connection.update-secret"
# What a client may rely on; the names are those that clients of 0-9-1 look for.
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
    "stream_offset_query": True,  # Ours: the argument x-stream-offset-query of queue.declare,
    "stream_ranges": True,  # and x-stream-last, x-stream-filter and the like of basic.consume.
}
# Without this Qpid's JMS client declares temporary queues that go with their first consumer.
QPID_PROPERTIES = {"qpid.queue_lifetime_supported": "true"}


def node_name() -> str:
    """Return the name of this broker, as those that name nodes have it."""
    return f"headrace@{platform.node()}"


def server_properties(
    product: str, version: str, identity: str, *, per_consumer_qos: bool
) -> dict[str, Any]:
    """The server properties; an empty version is the real one, the identity is the data's."""
    return {
        "host": platform.node(),
        "product": product,
        "version": version or __version__,
        "platform": f"Python {platform.python_version()}",
        "copyright": "Copyright the Headrace developers",
        "information": "Licensed under the Apache License 2.0",
        "cluster_name": f"headrace@{platform.node()}",
        "headrace_id": identity,  # Ours: no other data directory has this one.
        "headrace_extensions": EXTENSIONS,
        **QPID_PROPERTIES,
        "capabilities": {**CAPABILITIES, "per_consumer_qos": per_consumer_qos},
    }
