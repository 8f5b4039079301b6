# SPDX-License-Identifier: Apache-2.0
"""What browsers need: sessions with cookies, forms, and where a request comes from."""
