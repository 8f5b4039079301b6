# SPDX-License-Identifier: Apache-2.0
"""Definitions, users and parameters, and notes of their changes."""
