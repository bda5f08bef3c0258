CREATE TABLE emp (
  id INT, name STRING, dept INT, pay DECIMAL(8, 2), boss INT
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
CREATE TABLE dept (
  id INT, title STRING, budget DECIMAL(12, 2)
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT d.title, (SELECT COUNT(*) * 2 + COALESCE(MAX(e.id), 7) FROM emp e WHERE e.dept = d.id AND e.pay > 4600) AS n FROM dept d;
