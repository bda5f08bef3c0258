CREATE TABLE departures (
  departed TIMESTAMP(3),   -- when the flight left; the rows are in this order
  sched    TIMESTAMP(3),   -- when it should have left
  carrier  STRING,
  flight   INT,
  origin   STRING,
  dest     STRING,
  delay    INT             -- minutes; negative if it left early
) WITH (
  'connector' = 'filesystem',
  'format'    = 'parquet',
  'path'      = 'departures.parquet'
);

SELECT sched, departed, carrier, flight, origin, dest, delay FROM departures LIMIT 4;
