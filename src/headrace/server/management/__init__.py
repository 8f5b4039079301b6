# SPDX-License-Identifier: Apache-2.0
"""The broker's management: operations of operators, on a Unix socket.

``resources`` has a module for each subject of operators, with all operations on it. Beside it is
what serves them: ``socket`` reads a request, ``operation_table`` has the rights of its operation,
which is a function of one ``call``; ``tickets`` stand for users, ``sampling`` has the
counts for the console, ``operator_session`` is the operator's counterpart of a connection.
"""
