CREATE TABLE t (
  k STRING, s STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT k, s, SUM(s) OVER (ORDER BY k) AS t FROM (SELECT k, SUM(v) AS s FROM t GROUP BY k);
