-- Top-N over rows that are taken back.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (k STRING, n BIGINT, total INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'op');
INSERT INTO result
SELECT k, n, total FROM (
  SELECT k, n, total, ROW_NUMBER() OVER (ORDER BY total DESC, k) AS place
  FROM (SELECT k, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY k)
) WHERE place <= 3;
