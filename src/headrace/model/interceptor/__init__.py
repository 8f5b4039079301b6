# SPDX-License-Identifier: Apache-2.0
"""Observers, stamps and traces of messages on their way through exchanges."""
