# SPDX-License-Identifier: Apache-2.0
"""Archives of streams, read in place of what retention dropped from the broker."""
