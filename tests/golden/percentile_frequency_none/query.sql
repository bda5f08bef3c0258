CREATE TABLE emp (
  id INT, name STRING, dept INT, pay DECIMAL(8, 2), boss INT
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
CREATE TABLE dept (
  id INT, title STRING, budget DECIMAL(12, 2)
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv', 'csv.null-literal' = '');
SELECT boss, PERCENTILE(pay, ARRAY[0.8, 0.1], dept) AS p FROM emp GROUP BY boss;
