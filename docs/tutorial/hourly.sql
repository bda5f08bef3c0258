CREATE TABLE departures (
  departed TIMESTAMP(3),
  sched    TIMESTAMP(3),
  origin   STRING,
  delay    INT,
  WATERMARK FOR sched AS departed - INTERVAL '${hours}' HOUR
) WITH (
  'connector' = 'filesystem',
  'format'    = 'parquet',
  'path'      = 'departures.parquet'
);

SELECT origin, hour_start, flights, mean_delay
FROM (
  SELECT origin, window_start AS hour_start, COUNT(*) AS flights, AVG(delay) AS mean_delay
  FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR))
  GROUP BY origin, window_start, window_end
)
WHERE flights >= 10
ORDER BY mean_delay DESC
LIMIT 3;
