# SPDX-License-Identifier: Apache-2.0
"""The broker's objects as the console keeps them, with samples of their counters over time.

Lists that all users share are read once for all of them; each user sees its part.
"""
