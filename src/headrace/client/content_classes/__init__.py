# SPDX-License-Identifier: Apache-2.0
"""Files, and messages of 0-9's message class."""
