CREATE TABLE departures (
  departed TIMESTAMP(3), sched TIMESTAMP(3), origin STRING, delay INT
) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'departures.parquet');

CREATE TABLE days (departed TIMESTAMP(3), sched TIMESTAMP(3), origin STRING, delay INT, departed_on STRING)
PARTITIONED BY (departed_on)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'days/');

INSERT INTO days
SELECT departed, sched, origin, delay, DATE_FORMAT(departed, 'yyyy-MM-dd')
FROM departures
WHERE departed < TIMESTAMP '2013-01-08 00:00:00';
