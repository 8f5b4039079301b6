# SPDX-License-Identifier: Apache-2.0
"""Options of reads and writes: the table of options, parsers of values, and checks."""
