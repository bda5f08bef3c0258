//! Topics that are read with acknowledgements, and written.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Deref;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::services::{Job, Service, check_example, text};
use super::{copying, lines, wait_for, wait_for_rows};

/// What makes a session outlive its connection.
const SESSION: [&str; 3] = ["-c", "-x", "3600"];

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

    /// Makes a session, so that its messages are kept from now on.
    fn subscribe(&self, client_id: &str, topic: &str) {
        let arguments = [&SESSION[..], &["-i", client_id, "-t", topic, "-E"]].concat();
        let output = self.client("mosquitto_sub", &arguments).output().expect("it is there");
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
    let source = broker.options(
        "'topic' = 'plant/+/ready;alarms/#', 'client-id' = 'reads', 'bad-data' = 'dead-letter', \
         'dead-letter.path' = 'bad.jsonl'",
    );
    let text = copying(&folder, &source)
        .replace(
            "TABLE i (n BIGINT)",
            "TABLE i (n BIGINT, topic STRING METADATA, qos INT METADATA, retained BOOLEAN METADATA, \
             p MAP<STRING, STRING> METADATA FROM 'user-properties')",
        )
        .replace(
            "TABLE o (n BIGINT)",
            "TABLE o (n BIGINT, topic STRING, qos INT, retained BOOLEAN, who STRING)",
        )
        .replace("SELECT n FROM", "SELECT n, topic, qos, retained, p['who'] FROM");
    let job = Job::start(&broker.file("read", &text), &[]);
    let wait_for_row = |row: &str| {
        wait_for(row, || {
            let rows = lines(&folder.join("out"));
            rows.contains_key(row).then_some(()).ok_or_else(|| format!("{rows:?}"))
        });
    };
    wait_for_row("0,plant/1/ready,1,TRUE,");
    broker.publish(
        "alarms/a/b",
        "{\"n\": 1}\nnonsense\n{\"n\": 2}\n",
        &["-D", "publish", "user-property", "who", "me"],
    );
    wait_for_row("2,alarms/a/b,1,FALSE,me");
    broker.signal("-STOP");
    let took = job.interrupt();
    broker.signal("-CONT");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let of = |name: &str| text.replace("/jobs/read/", &format!("/jobs/{name}/"));
    let wrong = of("wrong").replace("'thalweg'", "'s3cret'");
    broker.refused("wrong", &wrong, &["not authorized", "correct 'username'"]);
    let without = of("id").replace("'client-id' = 'reads',", "");
    broker.refused("id", &without, &["client-id", "QoS 1"]);
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
    broker.subscribe("without", "in");
    broker.publish("in", &numbers(0, 500), &[]);
    let options =
        broker.options("'topic' = 'in', 'client-id' = 'without', 'receive-maximum' = '10'");
    let text = format!("CREATE TABLE i (n BIGINT) WITH ({options}); SELECT n FROM i LIMIT 500;");
    let said = broker.output("without", &text);
    for n in 0..500 {
        assert!(said.lines().any(|line| line == n.to_string()), "no {n} in: {said}");
    }
}

#[test]
#[ignore = "needs Mosquitto: make connect-test"]
fn rows_are_written_to_the_topics_that_they_name() {
    let Some(broker) = Broker::start() else { return };
    broker.subscribe("auditor", "out/#");
    let text = format!(
        "CREATE TABLE i (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', \
         'fields.n.end' = '5000'); CREATE TABLE o (n INT, topic STRING NOT NULL METADATA) WITH ({}); \
         INSERT INTO o SELECT n, 'out/' || CAST(MOD(n, 3) AS STRING) FROM i;",
        broker.options("'qos' = '1'")
    );
    broker.output("out", &text);
    let session = [&SESSION[..], &["-i", "auditor", "-t", "out/#", "-C", "5000", "-F", "%t %p"]];
    let output = broker.client("mosquitto_sub", &session.concat()).output().expect("it ends");
    let found: BTreeSet<String> = text_lines(&output.stdout);
    assert_eq!(found.len(), 5_000);
    assert!(found.contains("out/2 {\"n\":5000}"), "{:?}", found.iter().next());
    let wrong = text.replace("'out/' ||", "'out/#' ||");
    broker.refused("wrong", &wrong, &["table o"]);
}

fn text_lines(bytes: &[u8]) -> BTreeSet<String> {
    text(bytes).lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs Mosquitto: make connect-test"]
fn the_example_runs() {
    // Its script starts a broker of its own: this one says whether there can be any.
    let Some(broker) = Broker::start() else { return };
    check_example("iot-mqtt", &broker.folder("example"), &[]);
}
