-- Trino's tables, by its Hive connector, over what was exported with
-- --partition=host,release=NAME,day,pid (docs/fleet.md); written by scripts/table_docs.py from the declaration of the
-- tables. Put your own place for s3://memory/heaps, and leave out tables that were not exported. The CALLs are needed
-- again after each export.
CREATE SCHEMA IF NOT EXISTS hive.heaps;

CREATE TABLE hive.heaps.snapshots (
  "time" double,
  "boot_id" varchar,
  "container" varchar,
  "kind" varchar,
  "started" bigint,
  "exe" varchar,
  "core" varchar,
  "python" varchar,
  "glibc" varchar,
  "gdbheap" varchar,
  "rss" bigint,
  "swap" bigint,
  "memory_limit" bigint,
  "trim" bigint,
  "damage" bigint,
  "partial" boolean,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/snapshots',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'snapshots', 'FULL');

CREATE TABLE hive.heaps.ledger (
  "id" varchar,
  "parent" varchar,
  "name" varchar,
  "virtual" bigint,
  "resident" bigint,
  "swapped" bigint,
  "state" varchar,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/ledger',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'ledger', 'FULL');

CREATE TABLE hive.heaps.findings (
  "id" varchar,
  "bytes" bigint,
  "text" varchar,
  "advice" varchar,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/findings',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'findings', 'FULL');

CREATE TABLE hive.heaps.mappings (
  "start" bigint,
  "end" bigint,
  "size" bigint,
  "perms" varchar,
  "offset" bigint,
  "path" varchar,
  "resident" bigint,
  "swapped" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/mappings',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'mappings', 'FULL');

CREATE TABLE hive.heaps.arenas (
  "index" bigint,
  "address" bigint,
  "system" bigint,
  "in_use" bigint,
  "free" bigint,
  "fast" bigint,
  "tcache" bigint,
  "top" bigint,
  "used_chunks" bigint,
  "free_chunks" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/arenas',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'arenas', 'FULL');

CREATE TABLE hive.heaps.threads (
  "tid" bigint,
  "name" varchar,
  "stack_start" bigint,
  "stack_end" bigint,
  "stack_resident" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/threads',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'threads', 'FULL');

CREATE TABLE hive.heaps.holes (
  "address" bigint,
  "size" bigint,
  "resident" bigint,
  "allocator" varchar,
  "arena" bigint,
  "before" bigint,
  "after" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/holes',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'holes', 'FULL');

CREATE TABLE hive.heaps.types (
  "type" varchar,
  "count" bigint,
  "bytes" bigint,
  "buffers" bigint,
  "reached" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/types',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'types', 'FULL');

CREATE TABLE hive.heaps.blocks (
  "address" bigint,
  "size" bigint,
  "allocator" varchar,
  "type" varchar,
  "retained" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/blocks',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'blocks', 'FULL');

CREATE TABLE hive.heaps.objects (
  "address" bigint,
  "block" bigint,
  "size" bigint,
  "type" varchar,
  "retained" bigint,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/objects',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'objects', 'FULL');

CREATE TABLE hive.heaps.edges (
  "source" bigint,
  "root" varchar,
  "target" bigint,
  "strength" varchar,
  "host" varchar,
  "release" varchar,
  "day" varchar,
  "pid" bigint
) WITH (format = 'PARQUET', external_location = 's3://memory/heaps/edges',
  partitioned_by = ARRAY['host', 'release', 'day', 'pid']);
CALL hive.system.sync_partition_metadata('heaps', 'edges', 'FULL');
