# SPDX-License-Identifier: Apache-2.0
"""The driver's side of reads of streams: plan batches, ask the broker."""
