# SPDX-License-Identifier: Apache-2.0
"""What operators do with messages: peek, view, move, long jobs."""
