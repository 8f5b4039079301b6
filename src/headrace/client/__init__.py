# SPDX-License-Identifier: Apache-2.0
"""The AMQP client, asyncio and blocking."""
