# SPDX-License-Identifier: Apache-2.0
"""The virtual host of a connection, with the permissions of its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.security.authorized_host import AuthorizedHost, Dialect

if TYPE_CHECKING:
    from headrace.gateway.security.permissions import Rights
    from headrace.gateway.v0_x.connection.connection import GatewayConnection


def authorized_host(connection: GatewayConnection) -> AuthorizedHost:
    """Return the connection's virtual host, with the rules of its version and client."""
    quirks = connection.quirks
    return AuthorizedHost(
        connection.context,
        connection.vhost,
        connection.user,
        connection,
        Dialect.EARLY if connection.is_early else Dialect.V0_9_1,
        sticky=connection.is_early or quirks.redeclares,
        rebinds=quirks.rebinds,
    )


def check_access(
    connection: GatewayConnection, permission: str, resource_type: str, name: str
) -> None:
    """Refuse access to a name on which the user lacks the permission."""
    access: Rights = connection.context.access
    access.check(connection.user, connection.vhost.name, permission, resource_type, name)


def check_topic(
    connection: GatewayConnection, permission: str, exchange: str, routing_key: str
) -> None:
    """Refuse a routing key on which the user lacks the topic permission."""
    access: Rights = connection.context.access
    access.check_topic(connection.user, connection.vhost, permission, exchange, routing_key)
