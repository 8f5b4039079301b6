# SPDX-License-Identifier: Apache-2.0
"""The sections of a file of definitions, which broker, console and command line read and write."""

from __future__ import annotations

#: In the order of import: an element refers only to sections before its own.
SECTIONS = (
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
)
#: The sections of the definitions of one virtual host.
VHOST_SECTIONS = ("parameters", "policies", "exchanges", "queues", "bindings")
