# SPDX-License-Identifier: Apache-2.0
"""What connections of all versions share."""
