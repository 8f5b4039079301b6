# SPDX-License-Identifier: Apache-2.0
"""Commands that move queues from another broker."""
