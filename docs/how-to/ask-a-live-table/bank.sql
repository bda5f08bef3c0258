SET 'execution.checkpointing.interval' = '500 ms';

CREATE TABLE transfers (sender STRING, receiver STRING, amount INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'transfers/', 'source.monitor-interval' = '200 ms');

CREATE MATERIALIZED TABLE balances (PRIMARY KEY (account) NOT ENFORCED)
AS SELECT account, SUM(amount) AS balance, COUNT(*) AS entries
FROM (SELECT sender AS account, -amount AS amount FROM transfers
      UNION ALL SELECT receiver, amount FROM transfers)
GROUP BY account;
