# SPDX-License-Identifier: Apache-2.0
"""Sessions of 0-10: commands sent, received, completed, replayed."""
