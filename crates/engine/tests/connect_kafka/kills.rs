//! Jobs and brokers that are killed at random moments: nothing is lost, nothing is there twice,
//! nothing is seen before its snapshot is kept.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use thalweg_core::shim::SplitMix64;

use super::broker::Broker;
use super::services::Job;

fn kills(default: usize) -> usize {
    std::env::var("THALWEG_KILLS").map_or(default, |text| text.parse().expect("a number"))
}

/// What a reader of committed messages has seen stays, in its order.
struct Auditor {
    seen: Vec<String>,
}

impl Auditor {
    fn look(&mut self, broker: &Broker, topic: &str) {
        let values = broker.values(topic);
        assert!(values.starts_with(&self.seen), "what was seen has changed");
        let once: BTreeSet<&String> = values.iter().collect();
        assert_eq!(once.len(), values.len(), "a row is there twice");
        self.seen = values;
    }
}

#[test]
fn rows_are_written_exactly_once() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1, &[]);
    broker.topic("out", 1, &[]);
    let rows = 20_000;
    let values: Vec<String> = (0..rows).map(|n| format!("{{\"n\": {n}}}")).collect();
    broker.send("in", values.iter().map(|value| (0, None, Some(value.as_str()))));
    let text = format!(
        "SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '50 ms'; \
         CREATE TABLE i (n BIGINT) WITH ({}); \
         CREATE TABLE o (n BIGINT) WITH ({}, 'sink.delivery-guarantee' = 'exactly-once', \
         'sink.transactional-id-prefix' = 'audited'); \
         INSERT INTO o SELECT n FROM i;",
        broker.folder("killed").join("snapshots").display(),
        broker.bounded("in"),
        broker.json("out"),
    );
    let file = broker.file("killed", &text);
    let mut random = SplitMix64::new(7);
    let mut auditor = Auditor { seen: Vec::new() };
    for kill in 0..kills(6) {
        let job = Job::start(&file, &["--resume"]);
        sleep(Duration::from_millis(150 + random.below(1_500)));
        if kill % 5 == 4 {
            broker.crash();
            sleep(Duration::from_millis(random.below(300)));
            broker.start_again();
            sleep(Duration::from_millis(random.below(600)));
        }
        job.kill();
        auditor.look(&broker, "out");
    }
    let (is_right, said) = Job::start(&file, &["--resume"]).wait();
    assert!(is_right, "{said}");
    auditor.look(&broker, "out");
    let expected: BTreeSet<String> = (0..rows).map(|n| format!("{{\"n\":{n}}}")).collect();
    assert_eq!(auditor.seen.iter().cloned().collect::<BTreeSet<_>>(), expected);
    // The job has ended: another start may write next to it.
    let spool = broker.folder("killed").join(".thalweg-spool");
    let left = std::fs::read_dir(&spool).into_iter().flatten().flatten();
    let left: usize =
        left.flat_map(|folder| std::fs::read_dir(folder.path())).map(Iterator::count).sum();
    assert_eq!(left, 0, "the spool is empty");
}

/// The recipe "Write to Kafka exactly once", with its statements as the page has them but for the
/// broker's address and the interval of its snapshots.
#[test]
fn the_recipe_writes_each_result_once() {
    let Some(broker) = Broker::start() else { return };
    ["orders", "revenue", "bad-orders"].iter().for_each(|topic| broker.topic(topic, 1, &[]));
    let page = include_str!("../../../../docs/how-to/exactly-once-to-kafka.md");
    let statements = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next());
    let statements = statements.expect("a block of SQL");
    for (what, count) in [("localhost:9092", 2), ("'5 s'", 1)] {
        assert_eq!(statements.matches(what).count(), count, "{what}");
    }
    let text = statements.replace("localhost:9092", &broker.servers).replace("'5 s'", "'100 ms'");
    let file = broker.file("revenue", &text);
    let order = |time: &str, shop: &str, amount: &str| {
        format!(
            r#"{{"id": 1, "shop": "{shop}", "amount": {amount}, "at": "2026-03-01 10:{time}"}}"#
        )
    };
    let send = |values: &[String]| {
        broker.send("orders", values.iter().map(|value| (0, None, Some(value.as_str()))));
    };
    let result = |minute: i32, shop: &str, orders: i32, amount: &str| {
        format!(
            r#"{{"minute_start":"2026-03-01 10:{minute:02}:00","shop":"{shop}","orders":{orders},"amount":{amount}}}"#
        )
    };
    send(&[order("00:00", "a", "1.50"), order("00:30", "a", "2.25"), "no order".to_owned()]);
    send(&[order("00:40", "b", "7.10"), order("01:00", "a", "4.20"), order("02:15", "a", "1.00")]);
    let job = Job::start(&file, &["--resume"]);
    let first = [result(0, "a", 2, "3.75"), result(0, "b", 1, "7.1"), result(1, "a", 1, "4.2")];
    broker.wait_for("revenue", first.len());
    job.kill();
    send(&[order("02:20", "a", "1.25"), order("05:00", "b", "1.00")]);
    let job = Job::start(&file, &["--resume"]);
    let mut found = broker.wait_for("revenue", first.len() + 1);
    job.kill();
    found.sort();
    let mut expected = first.to_vec();
    expected.push(result(2, "a", 2, "2.25"));
    assert_eq!(found, expected);
    assert_eq!(broker.values("bad-orders"), ["no order"]);
}
