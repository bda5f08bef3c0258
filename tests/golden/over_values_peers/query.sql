CREATE TABLE t (
  k STRING, s STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT k, v, SUM(v) OVER (ORDER BY v) AS s, MAX(v) OVER (ORDER BY v) AS m FROM t;
