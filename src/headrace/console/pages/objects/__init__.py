# SPDX-License-Identifier: Apache-2.0
"""The pages of the broker's objects, one resource a module.

:mod:`headrace.console.pages.charts.addresses` has their charts.
"""
