CREATE TABLE t (a INT, b ROW<x INT, y STRING>) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT a, b FROM t;
