CREATE TABLE b (k STRING, v INT, f INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');
SELECT k, SUM(v) AS s FROM b GROUP BY GROUPING SETS ((TUMBLE(ts, INTERVAL '10' SECOND), k), (k));
