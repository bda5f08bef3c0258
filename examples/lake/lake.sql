-- Orders go from Kafka into a lake: each of them into a table of Iceberg, what each shop has sold so far into another one, a row for
-- each shop, and what it has sold in an hour into files of Parquet, a folder for each day. Snapshots are in the lake as well, so that the
-- job can resume on another machine.
SET 's3.endpoint' = '${s3}';
SET 's3.region' = 'us-east-1';
SET 's3.access-key' = 'reader';
SET 's3.secret-key' = '${secret:s3}';
SET 'execution.checkpointing.dir' = '${lake}/snapshots';
SET 'execution.checkpointing.interval' = '500 ms';

CREATE TABLE orders (
  id BIGINT NOT NULL, shop STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'kafka', 'topic' = 'lake-orders', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'
);

-- Created in the first run: a folder that every program knows that knows Iceberg.
CREATE TABLE all_orders (id BIGINT NOT NULL, shop STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3)) PARTITIONED BY (shop) WITH (
  'connector' = 'iceberg', 'catalog-name' = 'lake', 'catalog-type' = 'hadoop', 'warehouse' = '${lake}/warehouse',
  'catalog-database' = 'sales', 'catalog-table' = 'orders'
);

-- Each commit replaces the rows of the shops that have sold something.
CREATE TABLE shops (shop STRING, orders BIGINT, amount DECIMAL(38, 2), PRIMARY KEY (shop) NOT ENFORCED) WITH (
  'connector' = 'iceberg', 'catalog-name' = 'lake', 'catalog-type' = 'hadoop', 'warehouse' = '${lake}/warehouse',
  'catalog-database' = 'sales', 'format-version' = '2', 'write.upsert.enabled' = 'true'
);

-- A folder that is complete gets the file _SUCCESS, for programs that wait for it.
CREATE TABLE hours (shop STRING, hour_start TIMESTAMP(3), orders BIGINT, amount DECIMAL(38, 2), `day` STRING)
PARTITIONED BY (`day`) WITH (
  'connector' = 'filesystem', 'format' = 'parquet', 'path' = '${lake}/hours/',
  'sink.partition-commit.policy.kind' = 'success-file', 'sink.partition-commit.delay' = '1 h'
);

EXECUTE STATEMENT SET BEGIN
  INSERT INTO all_orders SELECT id, shop, amount, ts FROM orders;
  INSERT INTO shops SELECT shop, COUNT(*), SUM(amount) FROM orders GROUP BY shop;
  INSERT INTO hours
  SELECT shop, window_start, COUNT(*), SUM(amount), DATE_FORMAT(window_start, 'yyyy-MM-dd')
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))
  GROUP BY shop, window_start, window_end;
END;
