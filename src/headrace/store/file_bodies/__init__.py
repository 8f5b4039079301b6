# SPDX-License-Identifier: Apache-2.0
"""Bodies of files: taken in, and kept."""
