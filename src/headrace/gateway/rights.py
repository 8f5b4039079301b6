# SPDX-License-Identifier: Apache-2.0
"""Questions about permissions, and the refusal that clients of every version are given."""

from __future__ import annotations

from typing import Any

from headrace.gateway.audit import SILENT, Audit
from headrace.model.errors import AccessRefused

TOPIC = "topic"
PERMISSIONS = ("configure", "write", "read")


class Rights:
    """What users may do. `headrace.gateway.access.Access` answers from accounts and tokens."""

    audit: Audit = SILENT
    noted = ""  # The refusal that was told the audit log last, and the client not yet.

    def allowed(self, user: Any, vhost: str, permission: str, name: str) -> bool:
        """Tell whether the user may ``configure``, ``write`` to or ``read`` from the name."""
        raise NotImplementedError

    def topic_allowed(
        self, user: Any, vhost: str, permission: str, exchange: str, routing_key: str
    ) -> bool:
        """Tell whether the user may ``write`` to or ``read`` from the topic of a topic exchange."""
        return True

    def vhost_exists(self, name: str) -> bool:
        """Tell whether there is such a virtual host."""
        raise NotImplementedError

    def check(self, user: Any, vhost: str, permission: str, kind: str, name: str) -> None:
        """Refuse what the user has no permission for.

        Raises:
            AccessRefused: with the text that clients match.
        """
        if not self.allowed(user, vhost, permission, name):
            self.refuse(
                user,
                vhost,
                f"{permission} access to {kind} '{name}' in vhost '{vhost}' refused for user "
                f"'{user.name}'",
            )

    def any_allowed(self, user: Any, vhost: str, name: str) -> bool:
        """Tell whether the user has a permission on the name, whichever."""
        return any(self.allowed(user, vhost, permission, name) for permission in PERMISSIONS)

    def check_any(self, user: Any, vhost: str, kind: str, name: str) -> None:
        """Refuse to tell whether a thing exists to who has no permission on it at all.

        Raises:
            AccessRefused: as if the user had wanted to configure it.
        """
        if not self.any_allowed(user, vhost, name):
            self.check(user, vhost, "configure", kind, name)

    def check_topic(
        self, user: Any, vhost: Any, permission: str, exchange: str, routing_key: str
    ) -> None:
        """Refuse a topic that the user may not publish to or bind; other exchanges have none.

        ``vhost`` is the :class:`headrace.model.vhost.VirtualHost`.

        Raises:
            AccessRefused: with the text that clients match.
        """
        found = vhost.exchanges.get(exchange)
        if found is None or not is_topic(found):
            return
        if not self.topic_allowed(user, vhost.name, permission, exchange, routing_key):
            self.refuse(
                user,
                vhost.name,
                f"{permission} access to topic '{routing_key}' in exchange '{exchange}' in vhost "
                f"'{vhost.name}' refused for user '{user.name}'",
            )

    def refuse(self, user: Any, vhost: str, text: str) -> None:
        """Note a refusal, and raise it."""
        if self.audit.active:
            self.audit.tell(
                "permission",
                user=user,
                peer=getattr(user, "peer", None),
                allowed=False,
                reason=text,
                vhost=vhost,
            )
            self.noted = text
        raise AccessRefused(text)


def is_topic(exchange: Any) -> bool:
    """Tell whether an exchange routes by topics, be it later."""
    arguments = exchange.arguments or {}
    return exchange.type == TOPIC or arguments.get("x-delayed-type") == TOPIC
