CREATE TABLE b (k STRING, v INT, f INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');
SELECT window_start, window_end, window_time, k, COUNT(v) AS n FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY ROLLUP (window_start, window_end, window_time, k);
