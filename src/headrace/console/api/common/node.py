# SPDX-License-Identifier: Apache-2.0
"""The names of the one node and its cluster."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall


def node_name() -> str:
    """Return the name of the node in RabbitMQ's form."""
    return f"headrace@{platform.node()}"


async def cluster_name(call: HttpCall) -> str:
    """Return the name that an operator set, or the node's."""
    return await call.state.cluster_name() or node_name()
