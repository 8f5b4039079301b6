# SPDX-License-Identifier: Apache-2.0
"""Conformance: the standards' rules, and checks of them that any broker can be put to."""

from headrace.conformance import basic, connection, exchange, queue, tx
from headrace.conformance.check import CHECKS, Check, Site, site
from headrace.conformance.peer import BrokenRule, NotServed, Peer
from headrace.conformance.rules import RULES, Rule

__all__ = [
    "CHECKS",
    "RULES",
    "BrokenRule",
    "Check",
    "NotServed",
    "Peer",
    "Rule",
    "Site",
    "basic",
    "connection",
    "exchange",
    "queue",
    "site",
    "tx",
]
