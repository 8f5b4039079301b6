# SPDX-License-Identifier: Apache-2.0
"""The broker as a process, which serves clients and operators.

- `broker`: makes the parts, starts and stops them, and runs their timers
- `vhosts`: starts and stops virtual hosts
- `plug_ins`: the features that run in each virtual host beside its clients
- `reload`: settings that change in a running broker
- `systemd`: notifications to systemd
- `config`: settings, logs, the process
- `net`: listeners, transports, TLS, the PROXY protocol
- `login`: logins, tokens, changes of accounts
- `data`: the data directory and its backups
- `definitions`: import and export
- `management`: operations of operators, on a Unix socket
- `qmf`: the management protocol of Qpid's tools
- `observe`: alarms, audit log, events
- `cluster`: brokers that share a database; `cluster_relay`: connections and requests that one of
  them passes to another
- `relay`: processes that own the clients' sockets
"""
