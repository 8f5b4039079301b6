# SPDX-License-Identifier: Apache-2.0
"""The rules of the standards, and checks that run against any broker by its URL."""

from headrace.conformance import basic, connection, exchange, queue, tx
from headrace.conformance.check import CHECKS, Check, Site, site
from headrace.conformance.peer import BrokenRule, Peer
from headrace.conformance.rules import RULES, Rule
from headrace.conformance.v0_10 import exchange as exchange_0_10
from headrace.conformance.v0_10 import message as message_0_10
from headrace.conformance.v0_10 import opening as opening_0_10
from headrace.conformance.v0_10 import queue as queue_0_10
from headrace.conformance.v0_10 import tx as tx_0_10
from headrace.testing.raw_client import VersionNotServed

__all__ = [
    "CHECKS",
    "RULES",
    "BrokenRule",
    "Check",
    "Peer",
    "Rule",
    "Site",
    "VersionNotServed",
    "basic",
    "connection",
    "exchange",
    "exchange_0_10",
    "message_0_10",
    "opening_0_10",
    "queue",
    "queue_0_10",
    "site",
    "tx",
    "tx_0_10",
]
