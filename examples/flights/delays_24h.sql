-- The same question as delays.sql, asked by somebody who can wait.
--
--     thalweg run examples/flights/delays_24h.sql
--
-- No flight left more than 22 hours after its schedule, so that with a watermark 24 hours behind
-- the newest departure nothing is late: the answer is that of a batch query over the whole file.
-- Each hour's result comes a day later, too. That is the trade that a watermark makes: delays.sql
-- answers after an hour and does not see the flights that a storm held back for longer; those are
-- just the ones that make an hour one of the worst. It puts EWR 2013-12-17 19:00 first (69.2
-- minutes over 12 flights), this file LGA 2013-09-02 16:00 (250.3 minutes over 13 flights).

CREATE TABLE departures (
  departed TIMESTAMP(3),
  sched    TIMESTAMP(3),
  carrier  STRING,
  flight   INT,
  origin   STRING,
  dest     STRING,
  delay    INT,
  WATERMARK FOR sched AS departed - INTERVAL '24' HOUR
) WITH (
  'connector' = 'filesystem',
  'format'    = 'parquet',
  'path'      = 'departures.parquet'
);

-- Nothing may be late. If a row is, the job stops and says which.
SET 'late.data' = 'fail';

CREATE TABLE hours_24h (
  origin      STRING,
  hour_start  TIMESTAMP(3),
  flights     BIGINT,
  mean_delay  DOUBLE,
  share_late  DOUBLE,
  worst_delay INT
) WITH (
  'connector'  = 'filesystem',
  'format'     = 'csv',
  'csv.header' = 'true',
  'path'       = 'hours_24h.csv'
);

CREATE TABLE worst_hours (
  origin      STRING,
  hour_start  TIMESTAMP(3),
  flights     BIGINT,
  mean_delay  DOUBLE,
  share_late  DOUBLE,
  worst_delay INT
) WITH ('connector' = 'print');

CREATE VIEW hourly AS
SELECT
  origin,
  window_start AS hour_start,
  COUNT(*) AS flights,
  AVG(CAST(delay AS DOUBLE)) AS mean_delay,
  CAST(COUNT(*) FILTER (WHERE delay > 15) AS DOUBLE) / COUNT(*) AS share_late,
  MAX(delay) AS worst_delay
FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR))
GROUP BY origin, window_start, window_end;

EXECUTE STATEMENT SET
BEGIN
  INSERT INTO hours_24h
  SELECT origin, hour_start, flights, mean_delay, share_late, worst_delay FROM hourly;

  INSERT INTO worst_hours
  SELECT origin, hour_start, flights, ROUND(mean_delay, 1), ROUND(share_late, 2), worst_delay
  FROM (SELECT * FROM hourly WHERE flights >= 10 ORDER BY mean_delay DESC LIMIT 10);
END;
