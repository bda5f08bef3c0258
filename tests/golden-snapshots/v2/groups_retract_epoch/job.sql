-- Groups over groups in partial results.
-- equality: left
SET 'pipeline.order' = 'epoch';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (n BIGINT, keys BIGINT, highest INT, lowest STRING, different BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'op');
INSERT INTO result
SELECT n, COUNT(*), MAX(total), MIN(k), COUNT(DISTINCT total) FROM (
  SELECT k, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY k
) GROUP BY n;
