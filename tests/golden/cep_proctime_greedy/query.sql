CREATE TABLE ticker (
  sym STRING, rt TIMESTAMP(3), price INT, tax INT, pt AS PROCTIME()
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT * FROM ticker MATCH_RECOGNIZE (
  PARTITION BY sym
  ORDER BY pt
  MEASURES FIRST(A.price) AS low, SUM(A.tax) AS taxes, B.price AS high
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A+ B) WITHIN INTERVAL '1' HOUR
  DEFINE A AS A.price < 18, B AS B.price >= 18
) AS m;
