CREATE TABLE t (
  k STRING, s STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT v + 1 AS w, SUM(v) OVER (ORDER BY v + 1) AS c FROM t;
