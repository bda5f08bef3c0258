-- Batch mode: the rows that are left in the end.
-- equality: rows
SET 'pipeline.order' = 'epoch';
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (k STRING, n BIGINT, total INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT k, COUNT(*), SUM(v) FROM a GROUP BY k;
