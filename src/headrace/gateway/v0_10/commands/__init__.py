# SPDX-License-Identifier: Apache-2.0
"""Commands of 0-10, a module for each class."""
