-- What is in the lake.
SET 's3.endpoint' = '${s3}';
SET 's3.region' = 'us-east-1';
SET 's3.access-key' = 'reader';
SET 's3.secret-key' = '${secret:s3}';
SET 'execution.runtime-mode' = 'batch';

CREATE TABLE all_orders (id BIGINT NOT NULL, shop STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3)) PARTITIONED BY (shop) WITH (
  'connector' = 'iceberg', 'catalog-name' = 'lake', 'catalog-type' = 'hadoop', 'warehouse' = '${lake}/warehouse',
  'catalog-database' = 'sales', 'catalog-table' = 'orders'
);
CREATE TABLE shops (shop STRING, orders BIGINT, amount DECIMAL(38, 2), PRIMARY KEY (shop) NOT ENFORCED) WITH (
  'connector' = 'iceberg', 'catalog-name' = 'lake', 'catalog-type' = 'hadoop', 'warehouse' = '${lake}/warehouse',
  'catalog-database' = 'sales'
);
CREATE TABLE hours (shop STRING, hour_start TIMESTAMP(3), orders BIGINT, amount DECIMAL(38, 2), `day` STRING)
PARTITIONED BY (`day`) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '${lake}/hours/');

SELECT shop, COUNT(*) AS orders, COUNT(DISTINCT id) AS different, SUM(amount) AS amount FROM all_orders GROUP BY shop ORDER BY shop;
SELECT * FROM shops ORDER BY shop;
SELECT `day`, shop, COUNT(*) AS hours, SUM(orders) AS orders, SUM(amount) AS amount FROM hours GROUP BY `day`, shop ORDER BY `day`, shop;
