-- A running count and sum per auction; every change is a result.
-- --param rate=1000000 (updates per second), keys=10000000
CREATE TABLE bid (auction BIGINT, price BIGINT)
  WITH ('connector' = 'nexmark', 'kind' = 'bid', 'preset' = 'jet', 'keys' = '${keys}',
        'events' = '1000000000000', 'rate' = '${rate}');
CREATE TABLE sums (auction BIGINT, bids BIGINT, total BIGINT, PRIMARY KEY (auction) NOT ENFORCED)
  WITH ('connector' = 'blackhole');
INSERT INTO sums SELECT auction, COUNT(*), SUM(price) FROM bid GROUP BY auction;
