# SPDX-License-Identifier: Apache-2.0
"""All tests may use the fixtures that the package ships."""

pytest_plugins = ("headrace.testing.plugin", "pytester")
