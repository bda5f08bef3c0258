CREATE TABLE t (k STRING, i INT, ti TINYINT, si SMALLINT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = 'null');
SELECT k, VAR_POP(i) AS c1, VAR_SAMP(i) AS c2, VAR_POP(ti) AS c3, VAR_SAMP(si) AS c4, STDDEV_POP(i) AS c5 FROM t GROUP BY k;
