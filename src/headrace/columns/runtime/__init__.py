# SPDX-License-Identifier: Apache-2.0
"""State of a process that outlives a read: connections, and versions of a schema in files."""
