# SPDX-License-Identifier: Apache-2.0
"""The charts of pages: their titles and addresses, their lines, and the series of the lines."""
