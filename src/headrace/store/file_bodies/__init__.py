# SPDX-License-Identifier: Apache-2.0
"""Bodies of file messages, staged and stored."""
