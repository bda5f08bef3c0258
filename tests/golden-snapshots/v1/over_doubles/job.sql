-- OVER by rows and a GROUP BY that takes values back, of DOUBLE. Multiples of a quarter, so that sums are exact in any order.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (id BIGINT, k STRING, total DOUBLE, mean DOUBLE, spread DOUBLE, variance DOUBLE)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT id, k, SUM(x) OVER w, AVG(y) OVER w, ROUND(STDDEV_SAMP(x) OVER w, 6), ROUND(VAR_POP(y) OVER w, 6)
FROM (SELECT id, k, ts, CAST(v AS DOUBLE) / 4 AS x, CAST(v AS DOUBLE) * 8 AS y FROM a)
WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW);
