# SPDX-License-Identifier: Apache-2.0
"""The charts of pages: their addresses and titles, their lines, and the numbers of the lines."""
