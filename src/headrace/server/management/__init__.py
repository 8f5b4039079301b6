# SPDX-License-Identifier: Apache-2.0
"""What operators ask the broker, on a socket of its machine.

``resources`` has a module for each subject of operators, with all operations on it. Beside it is
what serves them: ``socket`` reads a request, ``operation_table`` has the rights of its operation,
which is a function of one ``call``; ``access`` has the tickets of users, ``sampling`` the counts
for the console, ``operator_session`` what a connection is to a client.
"""
