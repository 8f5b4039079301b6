# SPDX-License-Identifier: Apache-2.0
"""Many messages at once, as bytes."""
