CREATE TABLE t (
  k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TEMPORARY VIEW latest AS
SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) WHERE rn = 1;
SELECT window_start, COUNT(DISTINCT k) AS d, AVG(v) AS a, MIN(v) FILTER (WHERE v > 2) AS n, SUM(CAST(v AS DOUBLE)) AS e FROM TABLE(TUMBLE(TABLE latest, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end;
