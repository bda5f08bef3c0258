CREATE TABLE t (
  k STRING, s STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
CREATE TEMPORARY VIEW latest AS
SELECT k, s, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) WHERE rn = 1;
SELECT k, v, ROW_NUMBER() OVER (ORDER BY v) AS n FROM latest;
