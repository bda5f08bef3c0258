SET 'execution.runtime-mode' = 'batch';

CREATE TABLE per_minute (minute_start TIMESTAMP(3), meter STRING, readings BIGINT, used INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'per_minute.csv');

CREATE TABLE late_readings (ts TIMESTAMP(3), meter STRING, used INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'late.csv');

SELECT minute_start, meter, SUM(readings) AS readings, SUM(used) AS used
FROM (
  SELECT minute_start, meter, readings, used FROM per_minute
  UNION ALL
  SELECT FLOOR(ts TO MINUTE), meter, CAST(1 AS BIGINT), used FROM late_readings
)
GROUP BY minute_start, meter
ORDER BY minute_start, meter;
