-- Batch mode: a hash join.
-- equality: rows
SET 'pipeline.order' = 'epoch';
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE b (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'b.csv', 'csv.null-literal' = '');
CREATE TABLE result (a BIGINT, b BIGINT, k STRING)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT a.id, b.id, a.k FROM a JOIN b ON a.k = b.k AND a.v / 10 = b.v / 10;
