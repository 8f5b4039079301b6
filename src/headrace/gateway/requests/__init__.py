# SPDX-License-Identifier: Apache-2.0
"""What the broker answers to requests that are messages: any client of any version may ask."""
