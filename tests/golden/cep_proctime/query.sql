CREATE TABLE ticker (
  sym STRING, rt TIMESTAMP(3), price INT, tax INT, pt AS PROCTIME()
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT * FROM ticker MATCH_RECOGNIZE (
  PARTITION BY sym
  ORDER BY pt
  MEASURES START_ROW.rt AS start_t, LAST(DOWN.price) AS bottom, LAST(UP.rt) AS end_t
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO LAST UP
  PATTERN (START_ROW DOWN+ UP)
  DEFINE DOWN AS (LAST(DOWN.price, 1) IS NULL AND DOWN.price < START_ROW.price) OR DOWN.price < LAST(DOWN.price, 1), UP AS UP.price > LAST(DOWN.price, 1)
) AS m;
