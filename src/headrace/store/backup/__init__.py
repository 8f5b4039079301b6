# SPDX-License-Identifier: Apache-2.0
"""Copies of a data directory, and what is in one."""
