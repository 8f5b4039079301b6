# SPDX-License-Identifier: Apache-2.0
"""Bodies of messages, decoded to columns."""
