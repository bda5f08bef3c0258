-- Cumulating windows.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (at TIMESTAMP(3), k STRING, n BIGINT, total INT, mean DECIMAL(38, 6), highest STRING, different BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT window_start, k, COUNT(*), SUM(v), AVG(price), MAX(note), COUNT(DISTINCT v)
FROM TABLE(CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '8' SECOND))
GROUP BY window_start, window_end, k;
