CREATE TABLE orders (
  ts TIMESTAMP(3), item STRING, amount INT,
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '${data}/orders.csv');

CREATE TABLE per_minute (minute_start TIMESTAMP(3), item STRING, total INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '${data}/per_minute/');

INSERT INTO per_minute
SELECT window_start, item, SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, item;
