# SPDX-License-Identifier: Apache-2.0
"""Conformance: the standards' rules, and checks of them that any broker can be put to."""
