SET 'execution.runtime-mode' = 'batch';

CREATE TABLE departures (
  departed TIMESTAMP(3),
  sched    TIMESTAMP(3),
  origin   STRING,
  delay    INT,
  WATERMARK FOR sched AS departed - INTERVAL '24' HOUR
) WITH (
  'connector' = 'filesystem',
  'format'    = 'csv',
  'path'      = 'incoming/'
);

CREATE TABLE hours (origin STRING, hour_start TIMESTAMP(3), flights BIGINT, mean_delay INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'expected.csv');

INSERT INTO hours
SELECT origin, window_start, COUNT(*), AVG(delay)
FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR))
GROUP BY origin, window_start, window_end;
