CREATE TABLE t (
  k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TEMPORARY VIEW latest AS
SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) WHERE rn = 1;
SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s, MAX(v) AS m FROM TABLE(HOP(TABLE latest, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '30' SECOND)) GROUP BY window_start, window_end;
