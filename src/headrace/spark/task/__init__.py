# SPDX-License-Identifier: Apache-2.0
"""The work of a task: rejects of malformed messages of a queue."""
