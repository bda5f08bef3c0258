CREATE TABLE t (ts TIMESTAMP(3), k INT, s STRING, n INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = 'null');
SELECT k, FIRST_VALUE(m) AS f, LAST_VALUE(m) AS l, ARRAY_AGG(m) AS a, COUNT(*) AS c
FROM (SELECT k, CASE WHEN n < 8 THEN MAP[s, n] END AS m FROM t) GROUP BY k;
