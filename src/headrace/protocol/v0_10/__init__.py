# SPDX-License-Identifier: Apache-2.0
"""Parts that connections and sessions of 0-10 share."""
