CREATE TABLE emp (
  id INT, name STRING, dept INT, pay DECIMAL(8, 2), boss INT
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
CREATE TABLE dept (
  id INT, title STRING, budget DECIMAL(12, 2)
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT d.title, e.name, e.rest
FROM dept d, LATERAL (SELECT name, pay - 1 AS rest FROM emp WHERE emp.dept = d.id AND emp.pay < d.budget) AS e;
