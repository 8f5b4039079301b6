# SPDX-License-Identifier: Apache-2.0
"""Arguments of declarations: their names, values and meaning."""
