-- Bids with a table of 10,000 rows, and with the number of the event, as in the Jet paper.
CREATE TABLE bid (
  seq BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), p_time AS PROCTIME()
) WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

CREATE TABLE side_input (key BIGINT, `value` VARCHAR)
  WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '${side_input}');

SELECT B.seq, B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
FROM bid AS B JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON B.auction = S.key;
