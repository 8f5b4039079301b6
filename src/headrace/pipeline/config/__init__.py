# SPDX-License-Identifier: Apache-2.0
"""The file of a pipeline: parsing, checks of all tables, and contracts."""
