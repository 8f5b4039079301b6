# SPDX-License-Identifier: Apache-2.0
"""Definitions, users and parameters, and what changed them."""
