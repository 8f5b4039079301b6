# SPDX-License-Identifier: Apache-2.0
"""Checks of permissions, and the refusals for clients of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from headrace.gateway.security.audit import SILENT, Audit
from headrace.model.errors import AccessRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.gateway.security.user import User
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.vhost.virtual_host import VirtualHost

TOPIC = "topic"
PERMISSIONS = ("configure", "write", "read")
KEYS_KEPT = "messages keep their own routing keys"


class Rights:
    """The permissions of users; `headrace.gateway.security.access.Access` implements them."""

    audit: Audit = SILENT
    last_audited = ""  # The last refusal in the audit log, until the client has been answered.

    def allowed(self, user: User, vhost: str, permission: str, name: str) -> bool:
        """Return True if the user may ``configure``, ``write`` to or ``read`` from the name."""
        raise NotImplementedError

    def topic_allowed(
        self, user: User, vhost: str, permission: str, exchange: str, routing_key: str
    ) -> bool:
        """Return True if the user may ``write`` or ``read`` the topic of a topic exchange."""
        return True

    def every_topic_allowed(self, user: User, vhost: str, permission: str, exchange: str) -> bool:
        """Return True if no topic permission restricts the user at the exchange."""
        return True

    def account_user(self, name: str) -> User | None:
        """Return the user of an account, without a login; None if the account does not exist."""
        return None

    def vhost_exists(self, name: str) -> bool:
        """Return True if the virtual host exists."""
        raise NotImplementedError

    def check(self, user: User, vhost: str, permission: str, resource_type: str, name: str) -> None:
        """Refuse access to a name on which the user lacks the permission.

        Raises:
            AccessRefused: the user lacks the permission; clients match the text.
        """
        if not self.allowed(user, vhost, permission, name):
            self.refuse(
                user,
                vhost,
                f"{permission} access to {resource_type} '{name}' in vhost '{vhost}' refused "
                f"for user '{user.name}'",
            )

    def any_allowed(self, user: User, vhost: str, name: str) -> bool:
        """Return True if the user has any permission on the name."""
        return any(self.allowed(user, vhost, permission, name) for permission in PERMISSIONS)

    def check_any(self, user: User, vhost: str, resource_type: str, name: str) -> None:
        """Refuse queries about a name on which the user has no permission at all.

        Raises:
            AccessRefused: the error of a missing ``configure`` permission.
        """
        if not self.any_allowed(user, vhost, name):
            self.check(user, vhost, "configure", resource_type, name)

    def check_topic(
        self, user: User, vhost: VirtualHost, permission: str, exchange: str, routing_key: str
    ) -> None:
        """Refuse a routing key of a topic exchange on which the user lacks the permission.

        ``vhost`` is the :class:`headrace.model.vhost.virtual_host.VirtualHost`.

        Raises:
            AccessRefused: the user lacks the permission; clients match the text.
        """
        destination = vhost.exchanges.get(exchange)
        if destination is None or not is_topic(destination):
            return
        if not self.topic_allowed(user, vhost.name, permission, exchange, routing_key):
            self.refuse(
                user,
                vhost.name,
                f"{permission} access to topic '{routing_key}' in exchange '{exchange}' in vhost "
                f"'{vhost.name}' refused for user '{user.name}'",
            )

    def check_every_topic(self, user: User, vhost: VirtualHost, exchange: str, reason: str) -> None:
        """Refuse an exchange to which the user may not publish with every routing key.

        An exchange that does not exist yet may become a topic exchange.

        Raises:
            AccessRefused: a topic permission restricts the user; ``reason`` ends the text.
        """
        destination = vhost.exchanges.get(exchange)
        if destination is not None and not is_topic(destination):
            return
        if not self.every_topic_allowed(user, vhost.name, "write", exchange):
            self.refuse(
                user,
                vhost.name,
                f"write access to every topic in exchange '{exchange}' in vhost '{vhost.name}' "
                f"refused for user '{user.name}': {reason}",
            )

    def check_forwarding(
        self,
        user: User,
        vhost: VirtualHost,
        exchange: str,
        routing_key: object = None,
        *,
        dead_letters: bool = True,
    ) -> None:
        """Refuse an alternate or dead-letter exchange to which the user may not publish.

        ``routing_key`` is the key of dead letters; None if each keeps its own key.

        Raises:
            AccessRefused: the user lacks the permission; clients match the text.
        """
        self.check(user, vhost.name, "write", "exchange", exchange or "amq.default")
        if isinstance(routing_key, str):
            self.check_topic(user, vhost, "write", exchange, routing_key)
        elif dead_letters:
            reason = "without 'x-dead-letter-routing-key' dead letters keep their own routing keys"
            self.check_every_topic(user, vhost, exchange, reason)
        else:
            self.check_every_topic(user, vhost, exchange, KEYS_KEPT)

    def refusal_when_due(
        self, vhost: VirtualHost, name: str, exchange: str, keys: Iterable[str]
    ) -> str:
        """Return the reason why an account may no longer publish a delayed message; else empty."""
        try:
            user = self.account_user(name)
            if user is None:
                self.refuse(name, vhost.name, f"user '{name}' no longer exists")
            self.check(user, vhost.name, "write", "exchange", exchange or "amq.default")
            for key in keys:
                self.check_topic(user, vhost, "write", exchange, key)
        except AccessRefused as error:
            self.last_audited = ""  # No client is answered.
            return error.text
        return ""

    def refuse(self, user: User | str, vhost: str, text: str) -> NoReturn:
        """Write a refusal of a user, or of a name without an account, to the audit log; raise it.

        Raises:
            AccessRefused: always.
        """
        if self.audit.active:
            self.audit.record(
                "permission",
                user=user,
                peer=getattr(user, "peer", None),
                allowed=False,
                reason=text,
                vhost=vhost,
            )
            self.last_audited = text
        raise AccessRefused(text)


def is_topic(exchange: Exchange) -> bool:
    """Return True if an exchange routes by topics, now or later."""
    arguments = exchange.arguments or {}
    return exchange.type == TOPIC or arguments.get("x-delayed-type") == TOPIC
