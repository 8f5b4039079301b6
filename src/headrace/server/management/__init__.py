# SPDX-License-Identifier: Apache-2.0
"""The broker's management: operations of operators, on a Unix socket.

- `resources`: a module for each resource, with all operations on it
- `operations`, `operation_table`: the table of all operations, and the rights that each needs
- `call`: one request, with access to its fields
- `socket`, `client`: the management socket, and the requests of one operator
- `forwarding`, `forwarded_requests`: requests that another broker of the cluster serves
- `operator_session`: the operator's counterpart of a client's connection and channel
- `tickets`, `ticket_file`: proofs of a login, which stand for a user
- `sampling`: the counts for the console
"""
