# SPDX-License-Identifier: Apache-2.0
"""Brokers for tests of programs that use AMQP. The pytest fixture is ``headrace_broker``."""

from headrace.testing.broker import BrokerFailed, ChildBroker, LocalBroker

__all__ = ["BrokerFailed", "ChildBroker", "LocalBroker"]
