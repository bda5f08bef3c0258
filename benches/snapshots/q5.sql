-- Bids counted per auction over ten seconds, every ten milliseconds; every row of each result.
-- --param rate=500000 (events per second), keys=10000
CREATE TABLE bid (auction BIGINT, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND)
  WITH ('connector' = 'nexmark', 'kind' = 'bid', 'preset' = 'jet', 'keys' = '${keys}',
        'events' = '1000000000000', 'rate' = '${rate}');
CREATE TABLE counts (auction BIGINT, bids BIGINT, window_end TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO counts
SELECT auction, COUNT(*), window_end
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '0.010' SECOND, INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end;
