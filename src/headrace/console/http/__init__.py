# SPDX-License-Identifier: Apache-2.0
"""HTTP of the console: routes, logins, limits, headers and errors, in one place each."""
