# SPDX-License-Identifier: Apache-2.0
"""Exchanges of every type, and their bindings."""
