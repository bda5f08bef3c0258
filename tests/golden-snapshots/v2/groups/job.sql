-- A changelog of groups; aggregates of each layout.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (k STRING, n BIGINT, total INT, mean DECIMAL(38, 6), lowest STRING, different BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'op');
INSERT INTO result
SELECT k, COUNT(*), SUM(v), AVG(price), MIN(note), COUNT(DISTINCT v) FROM a GROUP BY k;
