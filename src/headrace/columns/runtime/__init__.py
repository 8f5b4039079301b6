# SPDX-License-Identifier: Apache-2.0
"""State that outlives a read: connections of the process, and versions of a schema in files."""
