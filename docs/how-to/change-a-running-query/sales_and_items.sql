SET 'pipeline.name' = 'sales';
SET 'execution.checkpointing.dir' = 'state';
SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE sales (
  ts TIMESTAMP(3), shop STRING, item STRING, amount DECIMAL(10, 2),
  WATERMARK FOR ts AS ts
) WITH (
  'connector' = 'filesystem', 'format' = 'csv', 'path' = 'incoming/',
  'source.monitor-interval' = '200 ms'
);

CREATE TABLE per_shop (day_start TIMESTAMP(3), shop STRING, sales BIGINT, amount DECIMAL(38, 2))
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'per_shop/');

CREATE TABLE per_item (day_start TIMESTAMP(3), item STRING, sales BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'per_item/');

EXECUTE STATEMENT SET
BEGIN
  INSERT INTO per_shop
  SELECT window_start, shop, COUNT(*), SUM(amount)
  FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(ts), INTERVAL '1' DAY))
  GROUP BY window_start, window_end, shop;

  INSERT INTO per_item
  SELECT window_start, item, COUNT(*)
  FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(ts), INTERVAL '1' DAY))
  GROUP BY window_start, window_end, item;
END;
