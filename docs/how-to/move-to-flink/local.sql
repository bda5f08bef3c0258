CREATE TABLE orders (
  ts TIMESTAMP(3), item STRING, amount INT,
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'orders.csv');
SET 'late.data' = 'fail';
SELECT window_start, item, SUM(amount) AS total
FROM TUMBLE(orders, ts, INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, item;
