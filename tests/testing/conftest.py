# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests that use our client."""

from support.clients.client_fixtures import name, pytest_pyfunc_call, queues, url

__all__ = ["name", "pytest_pyfunc_call", "queues", "url"]
