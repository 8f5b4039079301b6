# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests that use our client."""

from support.clients.client_fixtures import (
    channel,
    connection,
    name,
    pytest_pyfunc_call,
    queues,
    url,
)

__all__ = ["channel", "connection", "name", "pytest_pyfunc_call", "queues", "url"]
