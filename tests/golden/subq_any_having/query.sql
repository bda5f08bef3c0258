CREATE TABLE emp (
  id INT, name STRING, dept INT, pay DECIMAL(8, 2), boss INT
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
CREATE TABLE dept (
  id INT, title STRING, budget DECIMAL(12, 2)
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT dept, SUM(pay) AS s FROM emp GROUP BY dept HAVING SUM(pay) * 10 > ANY (SELECT budget FROM dept WHERE id IS NOT NULL);
