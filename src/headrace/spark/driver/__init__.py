# SPDX-License-Identifier: Apache-2.0
"""What the driver does for streams: plan batches, ask the broker."""
