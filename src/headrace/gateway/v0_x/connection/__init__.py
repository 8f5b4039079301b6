# SPDX-License-Identifier: Apache-2.0
"""Connections of 0-8 to 0-9-1, and the routing of their publishes."""
