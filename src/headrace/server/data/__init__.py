# SPDX-License-Identifier: Apache-2.0
"""The data directory and its backups."""
