# SPDX-License-Identifier: Apache-2.0
"""Pages of messages: browsing them, their dead letters, and jobs that move or delete them."""
