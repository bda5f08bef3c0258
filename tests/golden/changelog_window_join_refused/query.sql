CREATE TABLE t (
  k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TEMPORARY VIEW latest AS
SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) WHERE rn = 1;
SELECT a.k, a.v, b.v AS w FROM (SELECT * FROM TABLE(TUMBLE(TABLE latest, DESCRIPTOR(ts), INTERVAL '20' SECOND))) a JOIN (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND))) b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end;
