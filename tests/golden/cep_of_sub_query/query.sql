CREATE TABLE ticker (
  sym STRING, rt TIMESTAMP(3), price INT, tax INT,
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT * FROM (SELECT sym, rt, price + tax AS total FROM ticker WHERE tax > 0) MATCH_RECOGNIZE (
  PARTITION BY sym
  ORDER BY rt
  MEASURES FIRST(DOWN.total) AS first_down, LAST(UP.rt) AS end_t
  AFTER MATCH SKIP TO LAST UP
  PATTERN (START_ROW DOWN+ UP)
  DEFINE DOWN AS (LAST(DOWN.total, 1) IS NULL AND DOWN.total < START_ROW.total) OR DOWN.total < LAST(DOWN.total, 1),
    UP AS UP.total > LAST(DOWN.total, 1)
) AS m;
