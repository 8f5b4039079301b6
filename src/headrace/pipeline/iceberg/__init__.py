# SPDX-License-Identifier: Apache-2.0
"""Iceberg tables through pyiceberg: catalogs, the files of a batch, commits, reads and upkeep."""
