# SPDX-License-Identifier: Apache-2.0
"""Arguments of declarations: what they say, and what they may."""
