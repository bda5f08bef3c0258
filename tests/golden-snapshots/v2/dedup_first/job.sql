-- Deduplication: the first row that arrives.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (k STRING, v INT, at TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT k, v, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v / 20 ORDER BY clock) AS n FROM (SELECT *, PROCTIME() AS clock FROM a)
) WHERE n = 1;
