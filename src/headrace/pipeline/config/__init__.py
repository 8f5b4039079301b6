# SPDX-License-Identifier: Apache-2.0
"""A pipeline's file, read and checked."""
