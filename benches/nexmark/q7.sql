-- Query 7. The highest bid of each ten seconds.
--
-- Flink's text says BETWEEN, which also takes a bid that is as high and comes exactly when the next window begins. Here the end of
-- a window does not belong to it.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
  `dateTime` TIMESTAMP(3), extra VARCHAR,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

SELECT B.auction, B.price, B.bidder, B.`dateTime`, B.extra
FROM bid AS B
JOIN (
  SELECT MAX(price) AS maxprice, window_end AS `dateTime`
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS B1
ON B.price = B1.maxprice
WHERE B.`dateTime` >= B1.`dateTime` - INTERVAL '10' SECOND AND B.`dateTime` < B1.`dateTime`;
