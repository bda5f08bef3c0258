CREATE TABLE emp (
  id INT, name STRING, dept INT, pay DECIMAL(8, 2), boss INT
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT dept, boss, COUNT(*) AS n, GROUPING_ID(dept, boss) AS g
FROM emp GROUP BY GROUPING SETS (ROLLUP (dept, boss), (boss));
