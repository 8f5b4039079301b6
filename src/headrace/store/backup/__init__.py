# SPDX-License-Identifier: Apache-2.0
"""Backups of a data directory, and dry runs of a start."""
