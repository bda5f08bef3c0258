-- Query 1. The price of every bid in another currency.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
  `dateTime` TIMESTAMP(3), extra VARCHAR,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid;
