# SPDX-License-Identifier: Apache-2.0
"""The virtual host in memory that tests of queues take."""

from support.brokers.queue_kind_host import host

__all__ = ["host"]
