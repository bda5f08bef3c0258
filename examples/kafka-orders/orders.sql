-- Orders and their payments, joined within an hour of each other.
SET 'execution.checkpointing.dir' = '${work}/snapshots';
SET 'execution.checkpointing.interval' = '200 ms';

-- A message that is no order goes to a topic of its own, with where it was and why.
CREATE TABLE orders (
  id BIGINT, customer STRING, amount DECIMAL(10, 2), at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'bad-data' = 'dead-letter', 'dead-letter.topic' = 'bad-orders'
);

CREATE TABLE payments (
  order_id BIGINT, method STRING, paid_at TIMESTAMP(3),
  WATERMARK FOR paid_at AS paid_at - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'payments', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'
);

CREATE TABLE paid_orders (id BIGINT, customer STRING, amount DECIMAL(10, 2), method STRING, minutes BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'paid-orders', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'key.format' = 'raw', 'key.fields' = 'customer', 'json.encode.decimal-as-plain-number' = 'true',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'paid-orders',
  -- Flink's transactions last an hour unless it says otherwise, and brokers allow 15 minutes.
  'properties.transaction.timeout.ms' = '900000'
);

INSERT INTO paid_orders
SELECT o.id, o.customer, o.amount, p.method, TIMESTAMPDIFF(MINUTE, o.at, p.paid_at)
FROM orders AS o
JOIN payments AS p ON p.order_id = o.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR;
