//! Topics that are read with acknowledgements, and written.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Deref;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::services::{Job, Service, text};
use super::{copying, lines, wait_for, wait_for_rows};

struct Broker(Service);

impl Deref for Broker {
    type Target = Service;
    fn deref(&self) -> &Service {
        &self.0
    }
}

impl Broker {
    fn start() -> Option<Broker> {
        Service::start("mosquitto").map(Broker)
    }

    fn client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut client = Command::new(program);
        client.args(["-h", "127.0.0.1", "-p", self.value("MQTT_PORT"), "-V", "5", "-q", "1"]);
        client.args(["-u", "thalweg", "-P", "thalweg"]).args(arguments);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        client
    }

    /// Publishes lines.
    fn publish(&self, topic: &str, lines: &str, more: &[&str]) {
        let arguments = [&["-t", topic, "-l"], more].concat();
        let mut client = self.client("mosquitto_pub", &arguments).spawn().expect("it is there");
        client.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
        let output = client.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    fn options(&self, more: &str) -> String {
        format!(
            "'connector' = 'mqtt', 'url' = 'mqtt://127.0.0.1:{}', 'username' = 'thalweg', 'password' = 'thalweg', \
             'format' = 'json', {more}",
            self.value("MQTT_PORT")
        )
    }
}

fn numbers(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("{{\"n\": {n}}}\n")).collect()
}

#[test]
#[ignore = "needs Mosquitto: make connect-test"]
fn topics_are_read_with_their_metadata() {
    let Some(broker) = Broker::start() else { return };
    let folder = broker.folder("read");
    broker.publish("plant/1/ready", "{\"n\": 0}\n", &["-r"]);
    let text = format!(
        "CREATE TABLE i (n BIGINT, topic STRING METADATA, qos INT METADATA, retained BOOLEAN METADATA, \
         p MAP<STRING, STRING> METADATA FROM 'user-properties') WITH ({}); \
         CREATE TABLE o (n BIGINT, topic STRING, qos INT, retained BOOLEAN, who STRING) WITH \
         ('connector' = 'filesystem', 'path' = '{}/out.csv', 'format' = 'csv'); \
         INSERT INTO o SELECT n, topic, qos, retained, p['who'] FROM i;",
        broker.options(
            "'topic' = 'plant/+/ready;alarms/#', 'client-id' = 'reads', 'bad-data' = 'dead-letter', \
             'dead-letter.path' = 'bad.jsonl'"
        ),
        folder.display(),
    );
    let job = Job::start(&broker.file("read", &text), &[]);
    let part = folder.join("out.csv.part");
    let written = || {
        let rows = std::fs::read_to_string(&part).unwrap_or_default();
        rows + &std::fs::read_to_string(folder.join("out.csv")).unwrap_or_default()
    };
    wait_for("the retained message", || match written().contains("0,plant/1/ready,1,true,") {
        true => Ok(()),
        false => Err(format!("{:?}", std::fs::read_dir(&folder).map(Iterator::count))),
    });
    broker.publish(
        "alarms/a/b",
        "{\"n\": 1}\nnonsense\n{\"n\": 2}\n",
        &["-D", "publish", "user-property", "who", "me"],
    );
    wait_for("messages", || match written().contains("2,alarms/a/b,1,false,me") {
        true => Ok(()),
        false => Err(written()),
    });
    broker.signal("-STOP");
    let took = job.interrupt();
    broker.signal("-CONT");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let wrong = text.replace("'thalweg'", "'s3cret'");
    broker.refused("wrong", &wrong, &["BadUserNameOrPassword", "username"]);
    broker.refused("id", &text.replace("'client-id' = 'reads',", ""), &["client-id", "QoS 1"]);
}

#[test]
#[ignore = "needs Mosquitto: make connect-test"]
fn killed_jobs_and_restarted_brokers_lose_and_double_nothing() {
    let Some(broker) = Broker::start() else { return };
    let folder = broker.folder("killed");
    // The window is smaller than what comes between two kills: acknowledgements open it.
    let options =
        broker.options("'topic' = 'in/#', 'client-id' = 'killed', 'receive-maximum' = '100'");
    let file = broker.file("killed", &copying(&folder, &options));
    broker.publish("in/ready", &numbers(0, 1), &["-r"]);
    let mut job = Job::start(&file, &["--resume"]);
    assert!(wait_for_rows(&folder, 1).is_empty());
    let mut sent = 1;
    for round in 0..6 {
        broker.publish("in/a", &numbers(sent, sent + 300), &[]);
        sent += 300;
        sleep(Duration::from_millis(200));
        if round % 3 == 2 {
            broker.stop();
            sleep(Duration::from_millis(200));
            broker.start_again();
        } else {
            job.kill();
            // What comes meanwhile is kept for the session.
            broker.publish("in/b", &numbers(sent, sent + 50), &[]);
            sent += 50;
            job = Job::start(&file, &["--resume"]);
        }
    }
    let doubled = wait_for_rows(&folder, sent);
    assert!(doubled.is_empty(), "{doubled:?}");
    // A broker that is killed forgets what it has not saved: at least once is what is left.
    broker.publish("in/c", &numbers(sent, sent + 300), &[]);
    sleep(Duration::from_millis(2_500));
    broker.crash();
    broker.start_again();
    broker.publish("in/c", &numbers(sent + 300, sent + 400), &[]);
    wait_for_rows(&folder, sent + 400);
    job.interrupt();
}

#[test]
#[ignore = "needs Mosquitto: make connect-test"]
fn messages_are_acknowledged_also_without_snapshots() {
    let Some(broker) = Broker::start() else { return };
    let folder = broker.folder("without");
    let options =
        broker.options("'topic' = 'in', 'client-id' = 'without', 'receive-maximum' = '10'");
    let text = copying(&folder, &options);
    let text = text.split_once("CREATE").map(|(_, rest)| format!("CREATE {rest}")).expect("tables");
    broker.publish("in", &numbers(0, 1), &["-r"]);
    let job = Job::start(&broker.file("without", &text), &[]);
    sleep(Duration::from_millis(700));
    broker.publish("in", &numbers(1, 500), &[]);
    sleep(Duration::from_millis(1_500));
    job.interrupt();
    let rows: Vec<String> = std::fs::read_dir(folder.join("out"))
        .expect("files")
        .flat_map(|file| {
            let text = std::fs::read_to_string(file.expect("a file").path()).unwrap_or_default();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert!(rows.len() >= 500, "{} rows", rows.len());
    let _ = lines(&folder);
}

#[test]
#[ignore = "needs Mosquitto: make connect-test"]
fn rows_are_written_to_the_topics_that_they_name() {
    let Some(broker) = Broker::start() else { return };
    let reader = broker.client("mosquitto_sub", &["-t", "out/#", "-C", "5000", "-F", "%t %p"]);
    let mut reader = { reader }.spawn().expect("it is there");
    sleep(Duration::from_millis(500));
    let text = format!(
        "CREATE TABLE i (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', \
         'fields.n.end' = '5000'); CREATE TABLE o (n INT, topic STRING NOT NULL METADATA) WITH ({}); \
         INSERT INTO o SELECT n, 'out/' || CAST(MOD(n, 3) AS STRING) FROM i;",
        broker.options("'qos' = '1'")
    );
    let job = Job::start(&broker.file("out", &text), &[]);
    sleep(Duration::from_millis(300));
    let (is_right, said) = job.wait();
    assert!(is_right, "{said}");
    let output = {
        let _ = reader.stdin.take();
        reader.wait_with_output().expect("it ends")
    };
    let found: BTreeSet<String> = text_lines(&output.stdout);
    assert_eq!(found.len(), 5_000);
    assert!(found.contains("out/2 {\"n\":5000}"), "{:?}", found.iter().next());
    let wrong = text.replace("'out/' ||", "'out/#' ||");
    broker.refused("wrong", &wrong, &["table o"]);
}

fn text_lines(bytes: &[u8]) -> BTreeSet<String> {
    text(bytes).lines().map(str::to_owned).collect()
}
