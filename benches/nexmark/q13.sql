-- Query 13. Every bid with what a table of 10,000 rows says about its auction.
--
-- Flink's text. `${side_input}` names a CSV file with the keys 0 to 9999, each once; it is read before the first bid.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
  `dateTime` TIMESTAMP(3), extra VARCHAR, p_time AS PROCTIME(),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

CREATE TABLE side_input (
  key BIGINT, `value` VARCHAR
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '${side_input}');

SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
FROM bid AS B JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON MOD(B.auction, 10000) = S.key;
