-- A table by key that the query does not have: rows are kept to find the newest.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (n BIGINT, k STRING, PRIMARY KEY (n) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'upsert');
INSERT INTO result
SELECT COUNT(*) AS n, k FROM a GROUP BY k;
