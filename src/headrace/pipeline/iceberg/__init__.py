# SPDX-License-Identifier: Apache-2.0
"""Iceberg tables, through pyiceberg: catalogs, data files, commits, reads and upkeep."""
