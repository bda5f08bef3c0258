CREATE TABLE clicks (
  ct TIMESTAMP(0), usr STRING, page STRING, ms INT,
  WATERMARK FOR ct AS ct - INTERVAL '20' SECOND
) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT usr, page, ct FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY usr ORDER BY ct ASC) AS rn FROM clicks) WHERE rn = 1;
