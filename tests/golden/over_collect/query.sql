CREATE TABLE b (k STRING, v INT, f INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');
SELECT k, v, COLLECT(v) OVER (PARTITION BY k ORDER BY ts) AS p FROM b;
