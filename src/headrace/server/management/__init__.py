# SPDX-License-Identifier: Apache-2.0
"""The broker's management: operations of operators, on a Unix socket.

``resources`` has a module for each subject of operators, with all operations on it. Beside it is
what serves them: ``client`` serves the requests of an operator, which arrive at the ``socket`` or
are forwarded by another broker. ``operation_table`` has the rights of an operation, which is a
function of one ``call``. ``tickets`` stand for users, ``sampling`` has the counts for the console,
``operator_session`` is the operator's counterpart of a connection.
"""
