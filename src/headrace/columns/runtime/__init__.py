# SPDX-License-Identifier: Apache-2.0
"""What a process keeps beside a read: connections, and versions of a schema in files."""
