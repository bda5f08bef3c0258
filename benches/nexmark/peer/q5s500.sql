-- How many bids each auction has got within ten seconds, every 500 milliseconds: all of them, not only the most.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

SELECT auction, COUNT(*) AS num, window_end
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '0.5' SECOND, INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end;
