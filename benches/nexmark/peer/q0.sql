-- All events as they are, in the columns of bids.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

CREATE TABLE person (
  id BIGINT, name VARCHAR, city VARCHAR, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'person', ${events});

CREATE TABLE auction (
  id BIGINT, seller BIGINT, category BIGINT, initialBid BIGINT, itemName VARCHAR, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'auction', ${events});

SELECT auction, bidder, price, channel, `dateTime` FROM bid
UNION ALL
SELECT id, seller, initialBid, itemName, `dateTime` FROM auction
UNION ALL
SELECT id, id, id, name, `dateTime` FROM person;
