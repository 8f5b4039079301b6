# SPDX-License-Identifier: Apache-2.0
"""The tags of users: which of them let a user operate the broker, and how far.

A tag gives and never takes away: with two tags a user may what either allows.
"""

from __future__ import annotations

Tags = frozenset[str]

MANAGEMENT = "management"
POLICYMAKER = "policymaker"
MONITORING = "monitoring"
ADMINISTRATOR = "administrator"
VIEWER = "viewer"
TAGS = (MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR, VIEWER)

#: Any of these lets a user log in. They see what is in their own virtual hosts, and their own
#: connections; those of MONITOR see all.
LOOK: Tags = frozenset(TAGS)
#: These change queues, exchanges and bindings, and read and publish messages, as far as their
#: permissions go. A viewer sees no payloads: operations that show them need one of these, and
#: routes of the console say so by ``shows_payloads=True``.
USE: Tags = LOOK - {VIEWER}
MONITOR: Tags = frozenset((MONITORING, ADMINISTRATOR, VIEWER))
POLICY: Tags = frozenset((POLICYMAKER, ADMINISTRATOR))
ADMINISTER: Tags = frozenset((ADMINISTRATOR,))
