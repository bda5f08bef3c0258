-- The ten worst hours to fly out of New York in 2013, found while the flights are still leaving.
--
--     thalweg run examples/flights/delays.sql
--
-- Every row of departures.parquet is one flight, in the order in which the flights really left.
-- What we ask about is when they SHOULD have left: the event time of a flight is its scheduled
-- departure. A delayed flight is therefore a row that comes out of order, and a much delayed flight
-- is a row for an hour that everybody else has left behind long ago.

-- The input. Relative paths start at the folder of this file.
CREATE TABLE departures (
  departed TIMESTAMP(3),   -- when the flight left; the rows come in this order
  sched    TIMESTAMP(3),   -- when it should have left: the event time
  carrier  STRING,
  flight   INT,
  origin   STRING,         -- EWR, JFK or LGA
  dest     STRING,
  delay    INT,            -- minutes, negative when it left early
  -- How long do we wait? A watermark t promises that no later row has an event time at or before t.
  -- Here: an hour after the newest departure, everything that was scheduled before has left.
  -- That is a guess, and in a storm a wrong one. See delays_24h.sql for a patient answer.
  WATERMARK FOR sched AS departed - INTERVAL '1' HOUR
) WITH (
  'connector' = 'filesystem',
  'format'    = 'parquet',
  'path'      = 'departures.parquet'
);

-- Rows that break the promise come too late for their hour. They are counted, and instead of being
-- dropped (the default) they go to a table of their own, which has columns of the input's names.
SET 'late.data' = 'late_departures';

CREATE TABLE late_departures (
  departed TIMESTAMP(3),
  sched    TIMESTAMP(3),
  carrier  STRING,
  flight   INT,
  origin   STRING,
  dest     STRING,
  delay    INT
) WITH (
  'connector'  = 'filesystem',
  'format'     = 'csv',
  'csv.header' = 'true',
  'path'       = 'late_departures.csv'
);

-- All hours, for a spreadsheet or a plot.
CREATE TABLE hours (
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
  'path'       = 'hours.csv'
);

-- The worst ten, for the reader of the terminal.
CREATE TABLE worst_hours (
  origin      STRING,
  hour_start  TIMESTAMP(3),
  flights     BIGINT,
  mean_delay  DOUBLE,
  share_late  DOUBLE,
  worst_delay INT
) WITH ('connector' = 'print');

-- One row for each airport and hour. TUMBLE cuts event time into hours that do not overlap, and
-- adds the columns window_start, window_end and window_time to each row.
CREATE VIEW hourly AS
SELECT
  origin,
  window_start AS hour_start,
  COUNT(*) AS flights,
  AVG(CAST(delay AS DOUBLE)) AS mean_delay,      -- the AVG of an INT is an INT
  CAST(COUNT(*) FILTER (WHERE delay > 15) AS DOUBLE) / COUNT(*) AS share_late,
  MAX(delay) AS worst_delay
FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR))
GROUP BY origin, window_start, window_end;

-- Both answers from one pass over the input.
EXECUTE STATEMENT SET
BEGIN
  INSERT INTO hours
  SELECT origin, hour_start, flights, mean_delay, share_late, worst_delay FROM hourly;

  -- The input ends, so that it can be sorted: once, at its end.
  INSERT INTO worst_hours
  SELECT origin, hour_start, flights, ROUND(mean_delay, 1), ROUND(share_late, 2), worst_delay
  FROM (SELECT * FROM hourly WHERE flights >= 10 ORDER BY mean_delay DESC LIMIT 10);
END;
