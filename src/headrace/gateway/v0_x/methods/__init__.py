# SPDX-License-Identifier: Apache-2.0
"""Methods of 0-8 to 0-9-1, a module for each class."""
