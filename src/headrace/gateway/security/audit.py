# SPDX-License-Identifier: Apache-2.0
"""Who did what, from where, and whether it was allowed: what the gateway tells an audit log.

What was done is told by the broker's events (:mod:`headrace.model.events`); logins and refusals are
told here. `headrace.server.observe.audit_log` writes both. Facts are names and reasons: nothing
that a client sent as a secret is ever among them.
"""

from __future__ import annotations


class Audit:
    """Takes what is to be audited. This one, of a broker without an audit log, takes nothing."""

    active = False  # Ask this first, and spare the work.

    def refusal(self) -> str:
        """Why what is audited must be refused just now, for clients; empty: it need not be."""
        return ""

    def tell(
        self,
        what: str,
        *,
        user: object = None,
        peer: object = None,
        allowed: bool = True,
        reason: str = "",
        **about: object,
    ) -> None:
        """Note what a user did, or somebody at a peer who is not known yet, or was refused."""


SILENT = Audit()
