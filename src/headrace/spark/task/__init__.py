# SPDX-License-Identifier: Apache-2.0
"""What a task does: read records, make columns, decode, set bad ones aside."""
