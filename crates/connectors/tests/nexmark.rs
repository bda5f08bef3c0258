//! NEXMark tables: the same events however they are read, the distributions of the preset
//! `nexmark`, the events of the preset `peer`, and what is said about wrong declarations.

mod nexmark_support;

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampMicrosecondType, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use nexmark_support::{Table, read, read_by, request};
use thalweg_connectors::builtin;
use thalweg_connectors::conformance::check_replayable;
use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType};

const PERSON: &[&str] =
    &["id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra", "seq"];
const AUCTION: &[&str] = &[
    "id",
    "itemName",
    "description",
    "initialBid",
    "reserve",
    "dateTime",
    "expires",
    "seller",
    "category",
    "extra",
    "seq",
];
const BID: &[&str] = &["auction", "bidder", "price", "channel", "url", "dateTime", "extra", "seq"];
/// Columns of every preset.
const COMMON: [(&str, &[&str]); 3] = [
    ("person", &["id", "name", "dateTime", "seq"]),
    ("auction", &["id", "seller", "category", "initialBid", "dateTime", "seq"]),
    ("bid", &["auction", "bidder", "price", "dateTime", "seq"]),
];

/// The rows of several tables, as texts, by the number of the event.
fn by_number(tables: &[Table]) -> BTreeMap<i64, String> {
    let mut rows = BTreeMap::new();
    for Table(batch) in tables {
        let at = batch.num_columns() - 1;
        let numbers = Table(batch.clone()).numbers(at).to_vec();
        for (row, number) in numbers.into_iter().enumerate() {
            let slices = batch.columns().iter().map(|column| format!("{:?}", column.slice(row, 1)));
            assert!(rows.insert(number, slices.collect()).is_none(), "event {number} twice");
        }
    }
    rows
}

#[test]
fn it_resumes_from_every_position() {
    let connectors = builtin(Default::default());
    for options in
        [[("preset", "jet"), ("split", "1/3")], [("preset", "beam"), ("out-of-order-group", "100")]]
    {
        let options: Vec<(&str, &str)> = options.into_iter().chain([("events", "300")]).collect();
        let request = request("bid", &["auction", "price", "dateTime", "seq"], &options);
        check_replayable(&|| connectors.source(&request), 4).expect("no error");
    }
}

#[test]
fn an_event_is_the_same_however_it_is_read() {
    for preset in ["nexmark", "jet", "beam", "peer"] {
        for (kind, columns) in COMMON {
            let options = [("preset", preset), ("events", "1230")];
            let whole = read(kind, columns, &options);
            let whole_request = request(kind, columns, &options);
            assert_eq!(whole.0, read_by(&whole_request, 1).0, "{preset} {kind}");
            assert_eq!(whole.0, read_by(&whole_request, 17).0, "{preset} {kind}");
            for group in ["1", "7", "1000"] {
                let split = |split: usize| {
                    let split = format!("{split}/3");
                    let more = [("split", split.as_str()), ("out-of-order-group", group)];
                    read(kind, columns, &[&options[..], &more].concat())
                };
                let parts: Vec<Table> = (0..3).map(split).collect();
                assert_eq!(by_number(&parts), by_number(&[Table(whole.0.clone())]));
            }
        }
    }
}

#[test]
fn all_columns_are_the_same_alone() {
    for (kind, columns) in [("person", PERSON), ("auction", AUCTION), ("bid", BID)] {
        let whole = read(kind, columns, &[("events", "3000")]);
        for (at, name) in columns.iter().enumerate() {
            let mut projected = request(kind, columns, &[("events", "3000")]);
            projected.projection = Some(vec![at]);
            let alone = read_by(&projected, 13);
            assert_eq!(alone.0, whole.0.project(&[at]).expect("a column"), "{kind}.{name}");
        }
    }
}

#[test]
fn another_seed_gives_other_events() {
    for preset in ["nexmark", "jet"] {
        let prices = |seed| {
            let options = [("preset", preset), ("events", "100"), ("seed", seed)];
            read("bid", &["price"], &options)
        };
        assert_eq!(prices("1").0, prices("1").0);
        assert_ne!(prices("1").0, prices("2").0);
    }
}

fn share(part: usize, of: usize) -> f64 {
    part as f64 / of as f64
}

fn assert_near(value: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((value - expected).abs() <= tolerance, "{what}: {value} instead of {expected}");
}

/// Events of a mixed stream of half a million, and the newest person and auction at each.
fn mixed(kind: &str, columns: &[&str]) -> Table {
    read(kind, columns, &[("events", "500000")])
}

#[test]
fn bids_have_their_favourites() {
    let bids = mixed("bid", &["auction", "bidder", "price", "dateTime", "seq"]);
    assert_eq!(bids.rows(), 460_000);
    let (mut hot_auctions, mut hot_bidders) = (0, 0);
    let mut buckets = [0; 6];
    for row in 0..bids.rows() {
        let number = bids.number(4, row);
        assert_eq!(bids.number(3, row), 1_436_918_400_000 + number / 10);
        let (last_person, last_auction) = (number / 50, number / 50 * 3 + 2);
        let (auction, bidder) = (bids.number(0, row) - 1_000, bids.number(1, row) - 1_000);
        let hot = auction == last_auction / 100 * 100;
        hot_auctions += usize::from(hot);
        assert!(hot || (last_auction - 100..=last_auction + 10).contains(&auction));
        let hot = bidder == last_person / 100 * 100 + 1;
        hot_bidders += usize::from(hot);
        assert!(hot || (last_person - 999..=last_person + 10).contains(&bidder));
        let price = bids.number(2, row);
        assert!((100..=100_000_000).contains(&price));
        buckets[((price as f64 / 100.0).log10() as usize).min(5)] += 1;
    }
    // One of 111 others is the favourite too.
    let expected = 0.5 + 0.5 / 111.0;
    assert_near(share(hot_auctions, bids.rows()), expected, 0.004, "hot auctions");
    assert_near(share(hot_bidders, bids.rows()), 0.75, 0.003, "hot bidders");
    for bucket in buckets {
        assert_near(share(bucket, bids.rows()), 1.0 / 6.0, 0.003, "a decade of prices");
    }
}

#[test]
fn channels_and_pages_go_together() {
    let bids = mixed("bid", &["channel", "url"]);
    let mut pages: HashMap<&str, &str> = HashMap::new();
    let hot = ["Google", "Facebook", "Baidu", "Apple"];
    let mut hot_rows = 0;
    for (channel, url) in bids.texts(0).into_iter().zip(bids.texts(1)) {
        assert_eq!(*pages.entry(channel).or_insert(url), url, "one page per channel");
        hot_rows += usize::from(hot.contains(&channel));
        let parts: Vec<&str> = url.split('/').collect();
        assert_eq!((parts[2], parts.len()), ("www.nexmark.com", 7));
    }
    assert_near(share(hot_rows, bids.rows()), 0.5, 0.003, "hot channels");
    assert_eq!(pages.len(), 10_004);
    assert!(pages.values().collect::<HashSet<_>>().len() > 10_000);
    let mut numbered = 0;
    for (channel, url) in pages {
        let Some((_, id)) = url.split_once("&channel_id=") else { continue };
        let number: u32 = channel["channel-".len()..].parse().expect("a number");
        assert_eq!(id, (number.reverse_bits() as i32).unsigned_abs().to_string());
        numbered += 1;
    }
    assert_near(share(numbered, 10_000), 0.9, 0.015, "pages with a number");
}

#[test]
fn auctions_are_as_the_benchmark_says() {
    let auctions = mixed("auction", AUCTION);
    assert_eq!(auctions.rows(), 30_000);
    let (mut hot, mut length_ms) = (0, 0);
    let mut categories = [0; 5];
    for row in 0..auctions.rows() {
        assert_eq!(auctions.number(0, row), 1_000 + row as i64);
        let last_person = auctions.number(10, row) / 50;
        let seller = auctions.number(7, row) - 1_000;
        hot += usize::from(seller == last_person / 100 * 100);
        categories[(auctions.number(8, row) - 10) as usize] += 1;
        assert!(auctions.number(4, row) > auctions.number(3, row));
        let length = auctions.number(6, row) - auctions.number(5, row);
        // 1666 events of 0.1 ms on average.
        assert!((1..=334).contains(&length));
        length_ms += length;
    }
    assert_near(share(hot, auctions.rows()), 0.75, 0.01, "hot sellers");
    assert_near(length_ms as f64 / auctions.rows() as f64, 167.0, 2.0, "length of an auction");
    for category in categories {
        assert_near(share(category, auctions.rows()), 0.2, 0.01, "a category");
    }
}

/// Bytes of a row: eight for a number or time, and the text, but for `seq` and the named columns.
fn row_bytes(kind: &str, columns: &[&str], without: &[&str]) -> f64 {
    let table = mixed(kind, columns);
    let mut bytes = 0;
    for (at, name) in columns.iter().enumerate() {
        if *name == "seq" || without.contains(name) {
            continue;
        }
        bytes += match table.0.column(at).as_string_view_opt() {
            Some(texts) => texts.iter().flatten().map(str::len).sum(),
            None => 8 * table.rows(),
        };
    }
    bytes as f64 / table.rows() as f64
}

#[test]
fn rows_have_their_sizes() {
    assert_near(row_bytes("person", PERSON, &[]), 200.0, 4.0, "a person");
    assert_near(row_bytes("auction", AUCTION, &[]), 500.0, 4.0, "an auction");
    assert_near(row_bytes("bid", BID, &["channel", "url"]), 100.0, 1.0, "a bid");
}

#[test]
fn persons_live_somewhere() {
    let persons = mixed("person", PERSON);
    assert_eq!(persons.rows(), 10_000);
    let distinct = |at: usize| persons.texts(at).into_iter().collect::<HashSet<_>>().len();
    assert_eq!([1, 4, 5].map(distinct), [99, 10, 6]);
    let cards = persons.texts(3);
    assert!(cards.iter().all(|card| card.len() == 19 && card.split(' ').all(|g| g.len() == 4)));
    assert!(distinct(3) > 9_990);
    assert!(persons.texts(2).iter().all(|mail| mail.contains('@') && mail.ends_with(".com")));
}

#[test]
fn jet_keys_are_even() {
    let options = [("preset", "jet"), ("events", "100000"), ("keys", "1000")];
    let bids = read("bid", &["auction", "bidder", "dateTime"], &options);
    assert_eq!(bids.rows(), 100_000);
    for row in 0..bids.rows() {
        assert_eq!(bids.number(0, row), row as i64 % 1_000);
        assert_eq!(bids.number(2, row), 1_436_918_400_000 + row as i64 / 1_000);
    }
    let mut bidders = vec![0; 1_000];
    bids.numbers(1).iter().for_each(|bidder| bidders[*bidder as usize] += 1);
    assert!(bidders.iter().all(|count| (50..=150).contains(count)), "100 each, more or less");
}

/// The hash of the measurements of the other engines, over rows in any order.
fn peer_hash(a: i64, b: i64, c: i64) -> i64 {
    let x = (a as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add((b as u64).wrapping_mul(0xBF58_476D_1CE4_E5B9))
        .wrapping_add((c as u64).wrapping_mul(0x94D0_49BB_1331_11EB));
    let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (x ^ (x >> 29)) as i64
}

/// Java's hash of a text.
fn java_hash(text: &str) -> i64 {
    let hash = |hash: i32, c: u8| hash.wrapping_mul(31).wrapping_add(i32::from(c));
    i64::from(text.bytes().fold(0, hash))
}

fn peer(kind: &str, columns: &[&str]) -> Table {
    let options = [("preset", "peer"), ("events", "1000000"), ("event-time-rate", "50000")];
    read(kind, columns, &options)
}

/// Counts and sums of hashes that the reference of the other engines' measurements (in Java) gives
/// for a million events, 50,000 a second.
#[test]
fn peer_events_are_those_of_the_other_engines() {
    let bids = peer("bid", &["auction", "bidder", "price", "dateTime"]);
    let persons = peer("person", &["id", "name", "dateTime"]);
    let auctions = peer("auction", &["id", "seller", "dateTime"]);
    let sum =
        |rows: usize, hash: &dyn Fn(usize) -> i64| (0..rows).map(hash).fold(0, i64::wrapping_add);

    let keys = |table: &Table, time: usize| {
        sum(table.rows(), &|i| peer_hash(table.number(time, i), table.number(0, i), 0))
    };
    let all = keys(&bids, 3).wrapping_add(keys(&persons, 2)).wrapping_add(keys(&auctions, 2));
    assert_eq!(all, -5_808_267_643_498_429_237);

    let q1 = |i| peer_hash(bids.number(0, i), bids.number(2, i) * 908 / 1_000, bids.number(3, i));
    assert_eq!((bids.rows(), sum(bids.rows(), &q1)), (920_000, -7_292_405_085_411_510_454));

    let mut rows = 0;
    let mut best = BTreeMap::new();
    let mut total = 0i64;
    for i in 0..bids.rows() {
        let price = best.entry(bids.number(3, i) / 10_000).or_insert(0);
        *price = bids.number(2, i).max(*price);
        if bids.number(0, i) % 123 == 0 {
            rows += 1;
            total = total.wrapping_add(peer_hash(bids.number(0, i), bids.number(2, i), 0));
        }
    }
    assert_eq!((rows, total), (7_512, 7_475_968_245_106_346_814));
    let q7 = best.iter().map(|(window, price)| peer_hash(*price, (window + 1) * 10_000, 0));
    assert_eq!((best.len(), q7.fold(0, i64::wrapping_add)), (2, -5_030_466_490_994_698_026));

    let sellers: HashSet<(i64, i64)> = (0..auctions.rows())
        .map(|i| (auctions.number(1, i), auctions.number(2, i) / 10_000))
        .collect();
    let both = (0..persons.rows())
        .filter(|i| sellers.contains(&(persons.number(0, *i), persons.number(2, *i) / 10_000)));
    let q8 = both.map(|i| {
        let end = (persons.number(2, i) / 10_000 + 1) * 10_000;
        peer_hash(persons.number(0, i), end, java_hash(persons.text(1, i)))
    });
    let (rows, total) = q8.fold((0, 0i64), |(n, sum), hash| (n + 1, sum.wrapping_add(hash)));
    assert_eq!((rows, total), (13_762, -4_093_703_804_185_349_817));
    peer_sessions(&bids);
}

fn peer_sessions(bids: &Table) {
    let mut open: HashMap<i64, (i64, i64, i64)> = HashMap::new();
    let (mut rows, mut total) = (0, 0i64);
    let mut close = |bidder: i64, (start, last, count): (i64, i64, i64)| {
        rows += 1;
        total = total.wrapping_add(peer_hash(bidder, start ^ ((last + 10_000) << 20), count));
    };
    for i in 0..bids.rows() {
        let (bidder, time) = (bids.number(1, i), bids.number(3, i));
        let session = open.entry(bidder).or_insert((time, time, 0));
        if time > session.1 + 10_000 {
            close(bidder, *session);
            *session = (time, time, 0);
        }
        *session = (session.0, time, session.2 + 1);
    }
    open.into_iter().for_each(|(bidder, session)| close(bidder, session));
    assert_eq!((rows, total), (10_981, 6_339_226_547_778_854_127));
}

fn row_type(kind: &str, columns: &[&str]) -> Column {
    Column::new(kind, DataType::Row(request(kind, columns, &[]).schema.columns).nullable())
}

/// A table of whole events.
fn events(options: &[(&str, &str)]) -> TableRequest {
    let mut request = request("event", &["event_type", "dateTime", "seq"], options);
    let rows = [row_type("person", PERSON), row_type("auction", AUCTION), row_type("bid", BID)];
    request.schema.columns.splice(1..1, rows);
    request
}

#[test]
fn an_event_is_one_of_three() {
    let batch = read_by(&events(&[("events", "5000")]), 77).0;
    let types = batch.column(0).as_primitive::<Int32Type>();
    for (at, (kind, columns)) in
        [("person", PERSON), ("auction", AUCTION), ("bid", BID)].into_iter().enumerate()
    {
        let rows = batch.column(1 + at).as_struct();
        let is_kind = |row: usize| types.value(row) == at as i32;
        assert!((0..5_000).all(|row| rows.is_valid(row) == is_kind(row)));
        let valid: Vec<usize> = (0..5_000).filter(|row| is_kind(*row)).collect();
        let inner = RecordBatch::try_new(
            request(kind, columns, &[]).delivered().arrow(),
            rows.columns().to_vec(),
        )
        .expect("columns");
        let picked: Vec<RecordBatch> = valid.iter().map(|row| inner.slice(*row, 1)).collect();
        let picked = concat_batches(&inner.schema(), &picked).expect("one schema");
        assert_eq!(picked, read(kind, columns, &[("events", "5000")]).0, "{kind}");
    }
}

#[test]
fn times_come_in_the_declared_precision() {
    let mut request =
        request("bid", &["seq"], &[("events", "60"), ("base-time", "2024-01-01 00:00:00")]);
    for (name, precision) in [("DATETIME", 6), ("dateTime", 0)] {
        let column = Column::new(name, DataType::TimestampLtz(precision).nullable());
        request.schema.columns.push(column);
    }
    let batch = read_by(&request, 100).0;
    let micros = batch.column(1).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(micros.value(45), 1_704_067_200_000_000 + 4_000);
    let seconds = batch.column(2).as_primitive::<TimestampMillisecondType>().values();
    assert!(seconds.iter().all(|time| *time == 1_704_067_200_000));
}

#[test]
fn the_rate_is_kept_and_sets_the_times() {
    let started = std::time::Instant::now();
    let table =
        read("bid", &["dateTime"], &[("rate", "1000"), ("events", "50"), ("base-time", "0")]);
    // Event 49 is due 49 ms after the first.
    assert!(started.elapsed().as_millis() >= 48);
    assert_eq!(table.numbers(0), (4..50).collect::<Vec<i64>>());
}

#[test]
fn wrong_declarations_are_reported() {
    type Options<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &[&str], Options<'_>, &str); 14] = [
        ("bid", &["prices"], &[], "did you mean price?"),
        ("bid", &["channel"], &[("preset", "jet")], "'bid' of preset 'jet' has no column channel"),
        ("bids", &["price"], &[], "'person' or 'auction' or 'bid' or 'event'"),
        ("event", &["seq"], &[("preset", "jet")], "declare a table for each kind"),
        ("event", &["price"], &[], "event_type, person, auction, bid"),
        ("event", &["bid"], &[], "ROW"),
        ("bid", &["price"], &[("rate", "0")], "'unlimited'"),
        ("bid", &["price"], &[("event-time-rate", "0")], "at least 1"),
        ("bid", &["price"], &[("out-of-order-group", "1906")], "no multiple of 953"),
        ("bid", &["price"], &[("split", "2/2")], "'0/2' and '1/2'"),
        ("bid", &["price"], &[("base-time", "tomorrow")], "'now'"),
        ("bid", &["price"], &[("preset", "beam"), ("seed", "1")], "option 'seed'"),
        ("bid", &["price"], &[("event", "5")], "did you mean 'events'?"),
        ("bid", &["price"], &[("events.num", "5")], "not supported"),
    ];
    for (kind, columns, options, part) in cases {
        let request = request(kind, columns, options);
        let error = builtin(Default::default()).validate(&request, false).expect_err(part);
        let text = format!("{error} {}", error.help().unwrap_or_default());
        assert!(text.contains(part), "{text}");
    }
    let mut wrong = request("bid", &["price"], &[]);
    wrong.schema.columns[0].column_type.data_type = DataType::Int;
    let error = builtin(Default::default()).validate(&wrong, false).expect_err("an INT");
    assert!(error.to_string().contains("column price of type INT"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("BIGINT")));
}
