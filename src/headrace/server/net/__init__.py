# SPDX-License-Identifier: Apache-2.0
"""Sockets: listeners, transports, TLS and certificates."""
