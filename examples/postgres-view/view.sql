-- Customers live in PostgreSQL and change there; orders come as a stream. The view has a row for each customer with orders: how
-- much they have spent, beside their name and level as they are now.
SET 'execution.checkpointing.dir' = '${work}/snapshots';
SET 'execution.checkpointing.interval' = '200 ms';

CREATE TABLE customers (
  id INT NOT NULL,
  name STRING,
  level STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '${port}',
  'username' = 'thalweg', 'password' = '${secret:postgres}',
  'database-name' = 'postgres', 'schema-name' = 'public', 'table-name' = 'customers',
  'slot.name' = 'customers_view'
);

CREATE TABLE orders (customer INT, amount DECIMAL(10, 2)) WITH (
  'connector' = 'filesystem', 'path' = '${work}/orders/', 'format' = 'csv', 'source.monitor-interval' = '200 ms'
);

CREATE TABLE spending (
  customer INT NOT NULL,
  name STRING,
  level STRING,
  spent DECIMAL(38, 2),
  PRIMARY KEY (customer) NOT ENFORCED
) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:${port}/postgres', 'table-name' = 'spending',
  'username' = 'thalweg', 'password' = '${secret:postgres}',
  -- Rows appear with their snapshot. Without this, one that a killed run has shown could stay although its customer has gone since.
  'sink.delivery-guarantee' = 'exactly-once'
);

CREATE VIEW totals AS SELECT customer, SUM(amount) AS spent FROM orders GROUP BY customer;

INSERT INTO spending
SELECT c.id, c.name, c.level, t.spent FROM totals AS t JOIN customers AS c ON t.customer = c.id;
