-- Query 6. The average price of the last ten auctions that a seller has closed.
--
-- Flink does not run its own text of this query: there the rows behind OVER change, and have no row time. This one says the same in
-- rows that stay. The bids of an auction lie within its length, so they are one session if the gap is longer than any auction;
-- the session closes with a row time, and OVER takes the auctions in that order, which is that of their last bids. (Beam takes
-- them in the order of their highest bids; Flink's text has eleven rows in its frame.) Auctions last as long as 3333 events
-- do: a minute is enough from 56 events per second of event time on.

CREATE TABLE auction (
  id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
  `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'auction', ${events});

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
  `dateTime` TIMESTAMP(3), extra VARCHAR,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

CREATE VIEW bids_in_time AS
SELECT A.id, A.seller, B.price, B.`dateTime` AS bid_time
FROM auction AS A JOIN bid AS B
  ON A.id = B.auction
  AND B.`dateTime` BETWEEN A.`dateTime` AND A.`dateTime` + INTERVAL '1' MINUTE
  AND B.`dateTime` <= A.expires;

SELECT seller, AVG(final) OVER (
    PARTITION BY seller ORDER BY closed ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM (
  SELECT MAX(seller) AS seller, MAX(price) AS final, window_time AS closed
  FROM TABLE(SESSION(TABLE bids_in_time PARTITION BY id, DESCRIPTOR(bid_time), INTERVAL '1' MINUTE))
  GROUP BY id, window_start, window_end, window_time
);
