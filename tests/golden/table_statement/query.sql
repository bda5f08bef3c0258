CREATE TABLE dept (
  id INT, title STRING, budget DECIMAL(12, 2)
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = '');
TABLE dept;
