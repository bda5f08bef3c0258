CREATE TABLE orders (
  ts     TIMESTAMP(3),
  item   STRING,
  amount INT,
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH (
  'connector' = 'filesystem',
  'format'    = 'csv',
  'path'      = 'orders.csv'
);
