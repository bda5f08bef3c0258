CREATE TABLE orders (
  ordered_at TIMESTAMP(3),
  order_id   BIGINT,
  total      DECIMAL(10, 2),
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '1' MINUTE
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'orders.csv');

CREATE TABLE payments (
  paid_at  TIMESTAMP(3),
  order_id BIGINT,
  amount   DECIMAL(10, 2),
  WATERMARK FOR paid_at AS paid_at - INTERVAL '15' MINUTE
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'payments.csv');

SELECT o.order_id, o.ordered_at, o.total, p.paid_at, p.amount
FROM orders AS o LEFT JOIN payments AS p
  ON o.order_id = p.order_id
  AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '15' MINUTE;
