# SPDX-License-Identifier: Apache-2.0
"""Real brokers for tests. With pytest, ask for the fixture `headrace_broker`."""

from headrace.testing.broker import BrokerFailed, ChildBroker, LocalBroker

__all__ = ["BrokerFailed", "ChildBroker", "LocalBroker"]
