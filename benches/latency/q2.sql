-- Bids on one auction in 128, with the number of the event, as in the Jet paper.
CREATE TABLE bid (seq BIGINT, auction BIGINT, price BIGINT)
  WITH ('connector' = 'nexmark', 'kind' = 'bid', ${events});

SELECT seq, auction, price FROM bid WHERE MOD(auction, 128) = 0;
