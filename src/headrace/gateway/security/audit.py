# SPDX-License-Identifier: Apache-2.0
"""Port of the audit log for the gateway: user, action, address, and whether it was allowed.

Changes are reported by the broker's events (:mod:`headrace.model.events`), logins and refusals
here. `headrace.server.observe.audit_log` writes both. Records hold names and reasons, never a
secret that a client sent.
"""

from __future__ import annotations


class Audit:
    """An audit log that writes nothing, of a broker without one."""

    active = False  # Callers check this first, to save the work of a record.

    def refusal(self) -> str:
        """Return why audited actions are refused now, for clients; empty if they are not."""
        return ""

    def record(
        self,
        what: str,
        *,
        user: object = None,
        peer: object = None,
        allowed: bool = True,
        reason: str = "",
        **about: object,
    ) -> None:
        """Write an action of a user, or of a peer before its login, allowed or refused."""


SILENT = Audit()
