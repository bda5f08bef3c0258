//! NEXMark tables in SQL: windows over them give results that are known without an engine.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use thalweg::session::Session;

/// The BIGINT columns of a query's result, row by row, sorted.
fn rows(script: &str, columns: usize) -> Vec<Vec<i64>> {
    let batches = Session::default().execute(script).expect("runs");
    let mut rows: Vec<Vec<i64>> = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)))
        .map(|(batch, row)| {
            (0..columns).map(|at| batch.column(at).as_primitive::<Int64Type>().value(row)).collect()
        })
        .collect();
    rows.sort_unstable();
    rows
}

fn bids(table: &str, options: &str) -> String {
    format!(
        "CREATE TABLE {table} (auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3),
           WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND)
         WITH ('connector' = 'nexmark', 'kind' = 'bid', {options});"
    )
}

#[test]
fn even_keys_fill_every_window_alike() {
    let options =
        "'preset' = 'jet', 'keys' = '10', 'events' = '100000', 'event-time-rate' = '1000'";
    let query = "SELECT auction, COUNT(*) FROM TUMBLE(TABLE bid, DESCRIPTOR(dateTime), \
                 INTERVAL '10' SECOND) GROUP BY window_start, window_end, auction;";
    let expected: Vec<Vec<i64>> = (0..100).map(|row| vec![row / 10, 1_000]).collect();
    assert_eq!(rows(&format!("{}{query}", bids("bid", options)), 2), expected);
    // The same events out of order, from two sources.
    let half =
        |split: &str| format!("{options}, 'split' = '{split}', 'out-of-order-group' = '100'");
    let script = format!(
        "{}{}CREATE VIEW bid AS SELECT * FROM one UNION ALL SELECT * FROM two;{query}",
        bids("one", &half("0/2")),
        bids("two", &half("1/2")),
    );
    assert_eq!(rows(&script, 2), expected);
}

/// Query 11 over Apache Beam's events, whose result is published: 1919 sessions.
#[test]
fn sessions_of_bidders_are_those_that_beam_publishes() {
    let script = format!(
        "{}SELECT COUNT(*) FROM SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), \
         INTERVAL '10' SECOND) GROUP BY bidder, window_start, window_end;",
        bids("bid", "'preset' = 'beam', 'events' = '100000'")
    );
    let counts = rows(&script, 1);
    assert_eq!((counts.len(), counts[counts.len() - 1][0]), (1_919, 3_499));
    assert_eq!(counts.iter().map(|row| row[0]).sum::<i64>(), 92_000);
}

/// The combined stream, declared as Flink's suite declares it.
#[test]
fn whole_events_are_rows_in_rows() {
    let script = "CREATE TABLE events (event_type INT,
        person ROW<id BIGINT, name VARCHAR, state VARCHAR, `dateTime` TIMESTAMP(3)>,
        auction ROW<id BIGINT, itemName VARCHAR, expires TIMESTAMP(3)>,
        bid ROW<auction BIGINT, price BIGINT, extra VARCHAR>,
        dateTime TIMESTAMP(3), WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND)
      WITH ('connector' = 'nexmark', 'kind' = 'event', 'events' = '100000');
      SELECT COUNT(*), COUNT(*) FILTER (WHERE person IS NOT NULL), COUNT(*) FILTER (WHERE event_type = 1),
        COUNT(*) FILTER (WHERE bid IS NOT NULL)
      FROM TUMBLE(TABLE events, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)
      GROUP BY window_start, window_end;";
    assert_eq!(rows(script, 4), [[100_000, 2_000, 6_000, 92_000]]);
}

#[test]
fn wrong_columns_are_reported_before_anything_runs() {
    let mut session = Session::default();
    let script = "CREATE TABLE bid (auction BIGINT, prize BIGINT) \
        WITH ('connector' = 'nexmark', 'kind' = 'bid'); SELECT auction FROM bid;";
    let error = session.execute(script).expect_err("there is no such column");
    assert_eq!(error.help(), Some("did you mean price?"), "{error}");
    assert!(error.message().contains("table bid"), "{error}");
}

/// Windows overlap, but a result of one belongs to that one alone: aggregated again per window it
/// must not be counted in others. Compared with sums over the results of the inner query.
#[test]
fn results_of_windows_of_every_kind_are_aggregated_again_per_window() {
    let windows = [
        "HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND, INTERVAL '1' SECOND)",
        "CUMULATE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
        "TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '7' SECOND)",
        "SESSION(TABLE bid PARTITION BY auction, DESCRIPTOR(dateTime), INTERVAL '1' SECOND)",
    ];
    let tables = bids("bid", "'events' = '3000', 'event-time-rate' = '100'");
    for window in windows {
        let inner = format!(
            "SELECT auction, COUNT(*) AS n, window_start AS ws, window_end AS we FROM TABLE({window})
             GROUP BY auction, window_start, window_end"
        );
        let ms = |column: &str| {
            format!(
                "(UNIX_TIMESTAMP(CAST({column} AS STRING), 'yyyy-MM-dd HH:mm:ss.SSS') * 1000 + EXTRACT(MILLISECOND FROM {column}))"
            )
        };
        let (start, end) = (ms("ws"), ms("we"));
        let mut sums = std::collections::BTreeMap::<(i64, i64), (i64, i64)>::new();
        for row in rows(&format!("{tables} SELECT n, {start}, {end} FROM ({inner});"), 3) {
            let sum = sums.entry((row[1], row[2])).or_default();
            *sum = (sum.0 + 1, sum.1 + row[0]);
        }
        let wanted: Vec<Vec<i64>> =
            sums.into_iter().map(|((ws, we), (rows, n))| vec![ws, we, rows, n]).collect();
        assert!(wanted.len() > 3, "{window} has too few windows to compare");
        let again =
            format!("SELECT COUNT(*) AS c, SUM(n) AS s, ws, we FROM ({inner}) GROUP BY ws, we");
        let got = rows(&format!("{tables} SELECT {start}, {end}, c, s FROM ({again});"), 4);
        assert_eq!(got, wanted, "{window}");
    }
}
