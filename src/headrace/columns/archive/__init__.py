# SPDX-License-Identifier: Apache-2.0
"""Archives of streams, which have the records that retention dropped."""
