CREATE TABLE t (a INT, b ROW<x INT, y STRING>) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true');
SELECT a, b FROM t;
