# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of the server, which a broker runs in each virtual host beside its clients.

A plug-in is a feature for few clients, in a separate folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.qmf import agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.vhosts import Agent

#: Functions that start a plug-in in a recovered virtual host, or return None if a setting disables
#: it.
SERVED: tuple[Callable[[ManagedBroker, VirtualHost], Agent | None], ...] = (agent.serve,)


def start_agents(broker: ManagedBroker, vhost: VirtualHost) -> list[Agent]:
    """Start the plug-ins of a virtual host, and return them."""
    return [started for serve in SERVED if (started := serve(broker, vhost)) is not None]
