# SPDX-License-Identifier: Apache-2.0
"""The virtual host of a request, as its user may change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.security.access import User
from headrace.gateway.security.authorized_host import AuthorizedHost, Dialect
from headrace.gateway.security.permissions import Rights
from headrace.gateway.security.remote_peer import RemotePeer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.security.limits import Quotas
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call


class EveryRight(Rights):
    """The rights of the system user."""

    def allowed(self, user: User, vhost: str, permission: str, name: str) -> bool:
        return True

    def vhost_exists(self, name: str) -> bool:
        return True


class SystemUsersBroker:
    """The broker as the system user may change it."""

    access: Rights = EveryRight()

    def __init__(self, call: Call) -> None:
        self._context = call.broker.context

    @property
    def quotas(self) -> Quotas:
        """The limits of users and virtual hosts."""
        return self._context.quotas

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        """All virtual hosts by name."""
        return self._context.vhosts


def user_of(call: Call) -> User:
    """Return the user of a request; the system user has one without an account."""
    if call.user is not None:
        return call.user
    name = call.operator if call.actor is None else call.actor.name
    return User(call.broker.access, name, (), RemotePeer())


def rights_of(call: Call) -> Rights:
    """Return the rights of the user of a request."""
    return EveryRight() if call.user is None else call.broker.access


def host_of(call: Call) -> AuthorizedHost:
    """Return the virtual host of a request, to change by the rules of 0-9-1."""
    broker = call.broker.context if call.user is not None else SystemUsersBroker(call)
    return AuthorizedHost(broker, call.vhost(), user_of(call), call, Dialect.V0_9_1)
