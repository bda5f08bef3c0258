CREATE TABLE emp (
  id INT, name STRING, dept INT, pay DECIMAL(8, 2), boss INT
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
CREATE TABLE dept (
  id INT, title STRING, budget DECIMAL(12, 2)
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT id, name FROM emp WHERE EXISTS (SELECT 1 FROM emp AS e WHERE e.dept = emp.dept GROUP BY e.boss HAVING MAX(e.pay) > 4200);
