# SPDX-License-Identifier: Apache-2.0
"""The tags of users, which decide the operations that a user may run.

A user with several tags may do everything that any of them allows.
"""

from __future__ import annotations

Tags = frozenset[str]

MANAGEMENT = "management"
POLICYMAKER = "policymaker"
MONITORING = "monitoring"
ADMINISTRATOR = "administrator"
VIEWER = "viewer"
TAGS = (MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR, VIEWER)

#: The tags with which a user may log in. The user sees the objects of the virtual hosts that it may
#: open, and its own connections; with a tag of MONITOR it sees all.
LOOK: Tags = frozenset(TAGS)
#: The tags with which a user may change queues, exchanges and bindings, and read and publish
#: messages, within its permissions. A viewer must not see payloads: operations that show them
#: require one of these tags, and routes of the console have ``shows_payloads=True``.
USE: Tags = LOOK - {VIEWER}
#: The tags with which a user sees all virtual hosts and connections, and the broker's status.
MONITOR: Tags = frozenset((MONITORING, ADMINISTRATOR, VIEWER))
#: The tags with which a user may set policies and parameters of virtual hosts.
POLICY: Tags = frozenset((POLICYMAKER, ADMINISTRATOR))
#: The tags with which a user may change everything.
ADMINISTER: Tags = frozenset((ADMINISTRATOR,))
