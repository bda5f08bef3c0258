-- Prices in another currency, with the number of the event. Small rows, as in the Jet paper.
CREATE TABLE bid (seq BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3))
  WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

SELECT seq, auction, bidder, 0.908 * price AS price, `dateTime` FROM bid;
