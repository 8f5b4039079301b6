# SPDX-License-Identifier: Apache-2.0
"""The schema ``headrace`` of a database: ledgers and their entries.

``catalog`` has one row, the users and rules of the cluster. ``broker`` has a row for each broker,
with a counter that it advances every half second.

``log`` has a row for each ledger: its owner, the owner's epoch, the last entry, and in ``wanted``
the broker that an operator chose as its owner. Every append updates the row, which fences an
earlier owner. ``taken`` is the owner token: random, and new for each epoch, so that two owners
differ even if a server that lost commits gave both the same epoch. Entries are cut into rows that
fill a page each, which keeps them out of TOAST. Their tables are dropped whole and never vacuumed.

``object`` has a row for each object of a ledger that is complete, and ``object_part`` its bytes.

All brokers of a cluster must know the version of its schema. An addition needs no new version: it
changes no table and no function that older brokers use, and a broker that does not find it creates
it. ``lease`` is an addition: it has the lease of a broker, and is valid only with the incarnation
of the broker's row, because a broker of an older version writes its row without a lease.
"""

VERSION = 1  # The version of the schema.
ROW_BYTES = 8100  # Bytes of one row of an entry: one row on a page of 8 KiB.
LOCK = 1213354060  # First key of advisory locks: "HRPL".

FENCED = "HR001"
GAP = "HR002"
AGAIN = "HR003"
CHANGED = "HR004"

TABLES = (
    """do $$ begin
        if to_regnamespace('headrace') is null then create schema headrace; end if;
        end $$""",
    """create table headrace.cluster (
        id text not null, version integer not null)""",
    """create table headrace.log (
        id integer generated always as identity primary key, name text not null unique,
        owner text not null, taken text not null, epoch bigint not null,
        last bigint not null, front bigint not null, wanted text not null default ''
        ) with (fillfactor = 10)""",
    """create table headrace.segment (
        log integer not null references headrace.log, segment integer not null,
        first bigint not null, primary key (log, segment))""",
    """create table headrace.object (
        log integer not null references headrace.log, name text not null,
        size bigint not null, primary key (log, name))""",
    """create table headrace.object_part (
        log integer not null, name text not null, part integer not null,
        octets bytea not null, primary key (log, name, part))""",
    "alter table headrace.object_part alter octets set storage external",
    """create table headrace.catalog (
        one boolean primary key default true check (one),
        version text not null, content bytea not null)""",
    """create table headrace.broker (
        name text primary key, incarnation text not null, seen bigint not null,
        host text not null, port integer not null, state text not null
        ) with (fillfactor = 10)""",
)

ADVANCE = f"""
create function headrace.advance(
    of_log integer, of_taken text, of_epoch bigint, number bigint) returns void
language plpgsql as $$
declare found_log headrace.log;
begin
    update headrace.log set last = number
        where id = of_log and taken = of_taken and epoch = of_epoch and last = number - 1;
    if found then return; end if;
    select * into found_log from headrace.log where id = of_log;
    if found_log.epoch > of_epoch or found_log.epoch = of_epoch and found_log.taken <> of_taken then
        raise exception 'epoch % is over: % owns the ledger, in epoch %',
            of_epoch, found_log.owner, found_log.epoch using errcode = '{FENCED}';
    elsif found_log.epoch = of_epoch and found_log.last = number then
        raise exception 'the ledger has entry %', number using errcode = '{AGAIN}';
    end if;
    raise exception 'the ledger ends at entry % of epoch %, but entry % of epoch % is due',
        coalesce(found_log.last, 0), coalesce(found_log.epoch, 0), number, of_epoch
        using errcode = '{GAP}';
end $$"""  # noqa: S608 - The two values are ours.

OWN = f"""
create function headrace.own(of_log integer, of_taken text) returns void
language plpgsql as $$
begin
    perform 1 from headrace.log where id = of_log and taken = of_taken for update;
    if not found then
        raise exception 'another broker owns the ledger' using errcode = '{FENCED}';
    end if;
end $$"""

ADD_SEGMENT = """
create function headrace.add_segment(
    of_log integer, of_taken text, from_number bigint) returns integer
language plpgsql as $$
declare next_segment integer;
begin
    perform headrace.own(of_log, of_taken);
    select coalesce(max(segment), 0) + 1 into next_segment
        from headrace.segment where log = of_log;
    execute format('create table headrace.entries_%s_%s (
        number bigint not null, part integer not null, octets bytea not null,
        primary key (number, part)) with (autovacuum_enabled = false)', of_log, next_segment);
    execute format('alter table headrace.entries_%s_%s alter octets set storage plain',
        of_log, next_segment);
    insert into headrace.segment values (of_log, next_segment, from_number);
    return next_segment;
end $$"""

TRIM = """
create function headrace.trim(
    of_log integer, of_taken text, before bigint) returns bigint
language plpgsql as $$
declare passed integer; new_front bigint;
begin
    perform headrace.own(of_log, of_taken);
    for passed in select segment from headrace.segment one where log = of_log and exists (
        select 1 from headrace.segment later where later.log = of_log
        and later.segment > one.segment and later.first < before)
    loop
        execute format('drop table headrace.entries_%s_%s', of_log, passed);
        delete from headrace.segment where log = of_log and segment = passed;
    end loop;
    update headrace.log set front = greatest(front, least(before, last + 1)) where id = of_log
        returning front into new_front;
    return new_front;
end $$"""

DROP_LOG = """
create function headrace.drop_log(of_log integer) returns void
language plpgsql as $$
declare passed integer;
begin
    perform 1 from headrace.log where id = of_log for update;
    for passed in select segment from headrace.segment where log = of_log loop
        execute format('drop table headrace.entries_%s_%s', of_log, passed);
    end loop;
    delete from headrace.segment where log = of_log;
    delete from headrace.object where log = of_log;
    delete from headrace.object_part where log = of_log;
    delete from headrace.log where id = of_log;
end $$"""

# Without a lock: appends need not wait for it, and a part alone is not an object.
PUT_PART = f"""
create function headrace.put_part(
    of_log integer, of_taken text, of_name text, number integer, piece bytea) returns void
language plpgsql as $$
begin
    perform 1 from headrace.log where id = of_log and taken = of_taken;
    if not found then
        raise exception 'another broker owns the ledger' using errcode = '{FENCED}';
    end if;
    insert into headrace.object_part values (of_log, of_name, number, piece)
        on conflict (log, name, part) do update set octets = excluded.octets;
end $$"""  # noqa: S608 - The value is ours.

COMPLETE_OBJECT = """
create function headrace.complete_object(
    of_log integer, of_taken text, of_name text, of_size bigint) returns void
language plpgsql as $$
begin
    perform headrace.own(of_log, of_taken);
    insert into headrace.object values (of_log, of_name, of_size) on conflict do nothing;
end $$"""

REMOVE_OBJECT = """
create function headrace.remove_object(
    of_log integer, of_taken text, of_name text) returns void
language plpgsql as $$
begin
    perform headrace.own(of_log, of_taken);
    delete from headrace.object where log = of_log and name = of_name;
    delete from headrace.object_part where log = of_log and name = of_name;
end $$"""

SWEEP_OBJECTS = """
create function headrace.sweep_objects(of_log integer, of_taken text) returns void
language plpgsql as $$
begin
    perform headrace.own(of_log, of_taken);
    delete from headrace.object_part part where log = of_log and not exists (
        select 1 from headrace.object whole where whole.log = of_log and whole.name = part.name);
end $$"""

OBJECT_FUNCTIONS = (PUT_PART, COMPLETE_OBJECT, REMOVE_OBJECT, SWEEP_OBJECTS)

FUNCTIONS = (ADVANCE, OWN, ADD_SEGMENT, TRIM, DROP_LOG, *OBJECT_FUNCTIONS)
STATEMENTS = (*TABLES, *FUNCTIONS)

# The new epoch fences an owner. The catalog needs no lock: a virtual host that a later version of
# it adds has a new number, and so another ledger.
DROP_SOME = f"""
create function headrace.drop_some(of_name text, of_catalog text, most integer) returns boolean
language plpgsql as $$
declare of_log integer; passed integer; parts integer;
begin
    perform 1 from headrace.catalog where version = of_catalog;
    if not found then
        raise exception 'the catalog was changed' using errcode = '{CHANGED}';
    end if;
    select id into of_log from headrace.log where name = of_name for update;
    if not found then return true; end if;
    update headrace.log set epoch = epoch + 1, owner = '', taken = 'deleted'
        where id = of_log and taken <> 'deleted';
    select min(segment) into passed from headrace.segment where log = of_log;
    if passed is not null then
        execute format('drop table headrace.entries_%s_%s', of_log, passed);
        delete from headrace.segment where log = of_log and segment = passed;
        return false;
    end if;
    delete from headrace.object where log = of_log;
    delete from headrace.object_part where log = of_log and ctid = any (array(
        select ctid from headrace.object_part where log = of_log limit most));
    get diagnostics parts = row_count;
    if parts = most then return false; end if;
    delete from headrace.log where id = of_log;
    return true;
end $$"""  # noqa: S608 - The value is ours.

# Each addition, by a query that returns null while it is missing.
ADDITIONS = {
    "to_regclass('headrace.lease')": """create table headrace.lease (
        name text primary key, incarnation text not null, lease_s double precision not null)""",
    "to_regproc('headrace.drop_some')": DROP_SOME,
}


def entries_table(log: int, segment: int) -> bytes:
    """Return the name of the table with the entries of a segment."""
    return b"headrace.entries_%d_%d" % (log, segment)
