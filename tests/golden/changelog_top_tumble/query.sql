CREATE TABLE t (
  k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TEMPORARY VIEW highest AS
SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM t) WHERE rn <= 1;
SELECT window_start, COUNT(*) AS c, SUM(v) AS s FROM TABLE(TUMBLE(TABLE highest, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end;
