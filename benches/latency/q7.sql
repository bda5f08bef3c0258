-- The highest price within ten seconds, every ten milliseconds.
CREATE TABLE bid (
  price BIGINT, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

SELECT MAX(price) AS price, window_end
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '0.01' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
