SET 'execution.checkpointing.dir' = 'state';
SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE departures (
  departed TIMESTAMP(3),
  sched    TIMESTAMP(3),
  origin   STRING,
  delay    INT,
  WATERMARK FOR sched AS departed - INTERVAL '24' HOUR
) WITH (
  'connector' = 'filesystem',
  'format'    = 'csv',
  'path'      = 'incoming/',
  'source.monitor-interval' = '500 ms'
);

CREATE TABLE hours (origin STRING, hour_start TIMESTAMP(3), flights BIGINT, mean_delay INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'hours/');

INSERT INTO hours
SELECT origin, window_start, COUNT(*), AVG(delay)
FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR))
GROUP BY origin, window_start, window_end;
