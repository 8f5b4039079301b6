# SPDX-License-Identifier: Apache-2.0
"""What connections and sessions of 0-10 share."""
