# SPDX-License-Identifier: Apache-2.0
"""The work of a task: read records, make columns, decode, set bad rows aside."""
