# SPDX-License-Identifier: Apache-2.0
"""Ready-made pipelines, and what they need."""
