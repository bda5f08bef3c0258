//! The SQL gateway for clients of Flink: what its own clients send is answered as Flink answers.
//!
//! `recorded_gateway.jsonl` is what sql-client 2.3.0, the JDBC driver 2.3.0 and dbt-flink-adapter
//! 1.3.11 have sent, each request once, with what came back; `connect_flink` asks with the clients
//! themselves.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::support::{PATIENCE, Place, Running, raw_at};

/// Opens the gateway to the processes of this machine.
pub const OPEN: [&str; 4] =
    ["-o", "flink-gateway.listen=127.0.0.1:0", "-o", "flink-gateway.trust-loopback=true"];

/// A client of the gateway.
pub struct Client<'a> {
    address: &'a str,
    session: String,
}

/// A request, as it is sent; the status and the answer.
pub fn send(
    address: &str,
    (method, path): (&str, &str),
    headers: &str,
    body: &str,
) -> (u16, Value) {
    let length = body.len();
    let text = raw_at(
        address,
        &format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        ),
    );
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

impl Client<'_> {
    pub fn open<'a>(server: &'a Running, properties: Value) -> Client<'a> {
        let address = server.gateway.as_deref().expect("a gateway");
        let mut client = Client { address, session: String::new() };
        let (status, answer) =
            client.ask("POST", "/v4/sessions", &json!({ "properties": properties }));
        assert_eq!(status, 200, "{answer}");
        let handle = answer["sessionHandle"].as_str().expect("a handle");
        client.session = format!("/v4/sessions/{handle}");
        client
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send(self.address, (method, path), "content-type: application/json\r\n", &body)
    }

    /// Sends a statement; the path of its operation.
    fn begin(&self, statement: &str) -> String {
        let path = format!("{}/statements", self.session);
        let (status, answer) = self.ask("POST", &path, &json!({ "statement": statement }));
        assert_eq!(status, 200, "{statement}: {answer}");
        format!(
            "{}/operations/{}",
            self.session,
            answer["operationHandle"].as_str().expect("a handle")
        )
    }

    /// A page, once there is one.
    fn page(&self, path: &str) -> (u16, Value) {
        let begun = Instant::now();
        loop {
            let (status, answer) = self.ask("GET", path, &Value::Null);
            if answer["resultType"] != "NOT_READY" {
                return (status, answer);
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is never ready");
        }
    }

    /// The columns and rows of a statement, or why it is refused.
    pub fn run(&self, statement: &str) -> Result<(Value, Vec<Value>), String> {
        let operation = self.begin(statement);
        let (mut rows, mut next) =
            (Vec::new(), format!("{operation}/result/0?rowFormat=PLAIN_TEXT"));
        loop {
            let (status, mut page) = self.page(&next);
            if status != 200 {
                return Err(page["errors"].to_string());
            }
            let results = &mut page["results"];
            rows.append(results["data"].as_array_mut().expect("rows"));
            let columns = results["columns"].take();
            match page["nextResultUri"].as_str() {
                Some(uri) => uri.clone_into(&mut next),
                None => return Ok((columns, rows)),
            }
        }
    }

    /// The fields of the rows of a statement that is right.
    fn fields(&self, statement: &str) -> Vec<Value> {
        let (_, rows) = self.run(statement).expect(statement);
        rows.into_iter().map(|mut row| row["fields"].take()).collect()
    }
}

/// A path of the recording with the handles of this run.
fn replayed(path: &str, handles: &HashMap<String, String>) -> String {
    let filled = |text: String, (name, handle): (&String, &String)| {
        text.replace(&format!("{{{name}}}"), handle)
    };
    handles.iter().fold(path.to_owned(), filled)
}

#[test]
fn requests_of_flinks_clients_are_answered() {
    let server = Place::new("gateway-recorded").serve(&OPEN);
    let address = server.gateway.as_deref().expect("a gateway");
    let (mut handles, mut sessions, mut operations) = (HashMap::new(), 0, 0);
    let mut read = HashSet::new();
    for line in include_str!("recorded_gateway.jsonl").lines() {
        let request: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| request[key].as_str().unwrap_or_default();
        let path = replayed(text("path"), &handles);
        // How many pages rows come in is up to timing.
        let pages = path.split_once("/result/").map(|(operation, _)| operation.to_owned());
        if pages.as_ref().is_some_and(|operation| read.contains(operation)) {
            continue;
        }
        let headers = request["headers"].as_object().expect("headers").iter();
        let headers: String = headers
            .map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap_or_default()))
            .collect();
        let begun = Instant::now();
        let (status, answer) = loop {
            let (status, answer) = send(address, (text("method"), &path), &headers, text("body"));
            if answer["resultType"] != "NOT_READY" && answer["status"] != "RUNNING" {
                break (status, answer);
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is never ready");
        };
        assert_eq!(json!(status), request["status"], "{line}: {answer}");
        if answer["resultType"] == "EOS" {
            read.extend(pages);
        }
        let is_of_rows = request.get("rows").is_some();
        if is_of_rows
            && answer["resultType"] == request["result"]
            && !answer["isQueryResult"].as_bool().unwrap_or(false)
        {
            let rows = answer["results"]["data"].as_array().map_or(0, Vec::len);
            assert_eq!(json!(rows), request["rows"], "{line}: {answer}");
        }
        if let Some(handle) = answer["sessionHandle"].as_str() {
            handles.insert(format!("session {sessions}"), handle.to_owned());
            sessions += 1;
        }
        if let Some(handle) = answer["operationHandle"].as_str() {
            handles.insert(format!("operation {operations}"), handle.to_owned());
            operations += 1;
        }
    }
    assert_eq!((sessions, operations), (3, 53));
    server.await_state("written", "finished");
}

/// The expected texts are those of a Flink 2.3.0.
#[test]
fn answers_are_flinks() {
    let server = Place::new("gateway-answers").serve(&OPEN);
    let client = Client::open(&server, json!({ "table.local-time-zone": "UTC" }));
    let string = json!({"type": "VARCHAR", "nullable": true, "length": 2147483647});
    let shown = |statement: &str| {
        let path = format!("{}/result/0?rowFormat=JSON", client.begin(statement));
        let (status, mut page) = client.page(&path);
        assert_eq!(status, 200, "{page}");
        page["nextResultUri"].take();
        page
    };
    let column = |name: &str| json!({"name": name, "logicalType": string, "comment": null});
    let plain = |kind: &str, columns: Value, data: Value| {
        json!({"resultType": "PAYLOAD", "isQueryResult": false, "resultKind": kind, "nextResultUri": null,
               "results": {"columns": columns, "rowFormat": "JSON", "data": data}})
    };
    let ok =
        plain("SUCCESS", json!([column("result")]), json!([{"kind": "INSERT", "fields": ["OK"]}]));
    assert_eq!(shown("CREATE TABLE cc (a INT) WITH ('connector'='blackhole')"), ok);
    assert_eq!(shown("SET 'execution.runtime-mode' = 'streaming'"), ok);
    let tables = json!([{"kind": "INSERT", "fields": ["cc"]}]);
    assert_eq!(
        shown("SHOW TABLES;"),
        plain("SUCCESS_WITH_CONTENT", json!([column("table name")]), tables)
    );
    let described = shown("DESCRIBE cc");
    assert_eq!(
        described["results"]["data"][0]["fields"],
        json!(["a", "INT", true, null, null, null])
    );
    let boolean = json!({"type": "BOOLEAN", "nullable": true});
    assert_eq!(described["results"]["columns"][2]["logicalType"], boolean);
    let jobs = client.run("SHOW JOBS").expect("an answer").0;
    let names = jobs.as_array().expect("columns").iter().map(|column| column["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["job id", "job name", "status", "start time"]);
    values_have_flinks_forms(&client);
}

fn values_have_flinks_forms(client: &Client<'_>) {
    let statement = "SELECT 1 AS a, CAST(NULL AS STRING) AS b, ARRAY[1,2] AS c, MAP['k', 1] AS d, ROW(1, 'x') AS e, \
         DATE '2024-01-02' AS f, TIME '01:02:03' AS g, TIMESTAMP '2024-01-02 03:04:05.678' AS h, X'0102' AS j, \
         CAST(TIMESTAMP '2024-01-02 03:04:05' AS TIMESTAMP_LTZ(3)) AS l, CAST(1.50 AS DECIMAL(10,3)) AS n";
    let text = json!([
        "1",
        null,
        "[1, 2]",
        "{k=1}",
        "(1, x)",
        "2024-01-02",
        "01:02:03",
        "2024-01-02 03:04:05.678",
        "x'0102'",
        "2024-01-02 03:04:05.000",
        "1.500"
    ]);
    assert_eq!(client.fields(statement), [text]);
    // V1 has values of JSON only.
    let operation = client.begin(statement).replace("/v4/", "/v1/");
    let page = client.page(&format!("{operation}/result/0")).1;
    let values = json!([
        1, null, [1, 2], {"k": 1}, {"EXPR$0": 1, "EXPR$1": "x"}, "2024-01-02", "01:02:03",
        "2024-01-02T03:04:05.678", "AQI=", "2024-01-02T03:04:05Z", 1.5
    ]);
    let rows = match page["results"]["data"][0]["fields"].clone() {
        Value::Null => {
            let next = page["nextResultUri"].as_str().expect("another page");
            client.page(next).1["results"]["data"][0]["fields"].clone()
        }
        rows => rows,
    };
    assert_eq!(rows, values);
}

#[test]
fn a_query_without_an_end_comes_in_pages_until_it_is_closed() {
    let server = Place::new("gateway-pages").serve(&OPEN);
    let client = Client::open(&server, json!({}));
    client
        .run("CREATE TABLE n (x BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100000', \
              'fields.x.kind' = 'sequence', 'fields.x.start' = '1', 'fields.x.end' = '1000000000')")
        .expect("declared");
    let operation = client.begin("SELECT x FROM n");
    let page = |token: u64| client.page(&format!("{operation}/result/{token}?rowFormat=JSON"));
    let (mut token, mut last) = (0, 0);
    while last < 20_000 {
        let (status, rows) = page(token);
        assert_eq!(status, 200, "{rows}");
        for row in rows["results"]["data"].as_array().expect("rows") {
            last += 1;
            assert_eq!(row["fields"], json!([last]), "page {token}");
        }
        assert_eq!(page(token), (200, rows), "the page can be read again");
        token += 1;
    }
    assert_eq!(page(token + 1).0, 500, "a page that nobody has come to");
    assert_eq!(page(token - 2).0, 500, "a page that was left behind");
    let status = client.ask("GET", &format!("{operation}/status"), &Value::Null);
    assert_eq!(status, (200, json!({"status": "FINISHED"})));
    let closed = client.ask("DELETE", &format!("{operation}/close"), &Value::Null);
    assert_eq!(closed, (200, json!({"status": "CLOSED"})));
    assert_eq!(page(token).0, 404);
    let cancelled = client.begin("SELECT x FROM n");
    let answer = client.ask("POST", &format!("{cancelled}/cancel"), &Value::Null);
    assert_eq!(answer, (200, json!({"status": "CANCELED"})));
    assert_eq!(client.page(&format!("{cancelled}/result/0")).0, 500);
    assert_eq!(client.ask("DELETE", &client.session, &Value::Null).0, 200);
    assert_eq!(client.ask("GET", &client.session, &Value::Null).0, 404);
}

#[test]
fn an_insert_is_a_job_that_outlives_its_session_and_continues_from_its_savepoint() {
    let place = Place::new("gateway-jobs");
    let server = place.serve(&OPEN);
    let client = Client::open(&server, json!({ "pipeline.name": "Kept Numbers" }));
    client
        .run(
            "CREATE TABLE n (x BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '400', \
              'fields.x.kind' = 'sequence', 'fields.x.start' = '1', 'fields.x.end' = '2000')",
        )
        .expect("declared");
    client
        .run("CREATE TABLE kept (x BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'kept.csv')")
        .expect("declared");
    client.run("SET 'execution.checkpointing.interval' = '200 ms'").expect("set");
    let statement = "INSERT INTO kept SELECT x FROM n";
    let id = client.fields(statement)[0][0].as_str().expect("an id").to_owned();
    assert_eq!(id.len(), 32);
    server.await_snapshot("kept-numbers");
    let jobs = client.fields("SHOW JOBS");
    assert_eq!((&jobs[0][0], &jobs[0][1]), (&json!(id), &json!("Kept Numbers")));
    assert_eq!(client.ask("DELETE", &client.session, &Value::Null).0, 200);

    let other = Client::open(&server, json!({ "pipeline.name": "Kept Numbers" }));
    let path = other.fields(&format!("STOP JOB '{id}' WITH SAVEPOINT"))[0][0].clone();
    assert!(path.as_str().is_some_and(|path| Path::new(path).is_dir()), "{path}");
    assert_eq!(server.job("kept-numbers")["state"], "stopped");
    let other = Client::open(
        &server,
        json!({ "pipeline.name": "Kept Numbers", "execution.state-recovery.path": path,
                "table.dml-sync": "true", "execution.checkpointing.interval": "200 ms",
                "execution.checkpointing.num-retained": "1" }),
    );
    for declaration in [
        "CREATE TABLE n (x BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '400', \
         'fields.x.kind' = 'sequence', 'fields.x.start' = '1', 'fields.x.end' = '2000')",
        "CREATE TABLE kept (x BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'kept.csv')",
    ] {
        other.run(declaration).expect("declared");
    }
    let again = other.fields(statement)[0][0].as_str().expect("an id").to_owned();
    assert_ne!(again, id);
    assert_eq!(place.numbers("kept.csv"), (1..=2000).collect::<Vec<_>>());
    // The job has ended with another last snapshot, and only the newest of those is kept.
    let savepoint = path.as_str().and_then(|path| path.rsplit('/').next()?.parse::<u64>().ok());
    let token = server.token("reads", "read");
    let (_, listed) = server.ask("GET", "/v1/jobs/kept-numbers/snapshots", &token, "", "");
    let (_, listed) = listed.split_once("\r\n\r\n").expect("a body");
    let listed: Value = serde_json::from_str(listed).expect("JSON");
    let kinds = listed["items"].as_array().expect("a list").iter();
    let kinds: Vec<_> = kinds.map(|own| (own["number"].as_u64(), own["kind"].as_str())).collect();
    assert!(kinds.contains(&(savepoint, Some("manual"))), "{savepoint:?}: {kinds:?}");
    // A job that was waited for and failed is an error of its statement.
    let refused =
        other.run("INSERT INTO kept SELECT CAST('x' AS BIGINT) FROM n").expect_err("no number");
    assert!(refused.contains("Caused by: "), "{refused}");
}

#[test]
fn statement_sets_and_tables_of_queries_become_jobs() {
    let place = Place::new("gateway-sets");
    let server = place.serve(&OPEN);
    let client = Client::open(&server, json!({ "table.dml-sync": "true" }));
    let file = |name: &str| {
        format!(
            "CREATE TABLE {name} (x BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{name}.csv')"
        )
    };
    for statement in [
        &file("a"),
        &file("b"),
        "BEGIN STATEMENT SET;",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (2)",
        "END;",
        "CREATE TABLE c WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'c.csv') AS SELECT 3 AS x",
        // The table is declared, and the query that has filled it runs not again.
        "INSERT INTO a SELECT CAST(x AS BIGINT) FROM c WHERE x > 3",
    ] {
        let ran = client.run(statement);
        let is_second_write = statement.starts_with("INSERT INTO a SELECT");
        assert!(ran.is_ok() || is_second_write, "{statement}: {ran:?}");
    }
    assert_eq!(place.numbers("b.csv"), [2]);
    assert_eq!(place.numbers("c.csv"), [3]);
    assert_eq!(client.fields("SELECT x FROM c"), [json!(["3"])]);
    client.run("BEGIN STATEMENT SET").expect("begun");
    let refused = client.run("SELECT 1").expect_err("no INSERT");
    assert!(refused.contains("only INSERTs stand"), "{refused}");
}

#[test]
fn errors_have_flinks_form_and_our_place_and_hint() {
    let server = Place::new("gateway-errors").serve(&OPEN);
    let client =
        Client::open(&server, json!({ "unknown.option": "x", "sql-client.verbose": "true" }));
    client.run("CREATE TABLE t (name STRING) WITH ('connector' = 'blackhole')").expect("declared");
    let operation = client.begin("SELECT nam FROM t");
    let (status, answer) = client.page(&format!("{operation}/result/0"));
    assert_eq!(status, 500);
    let trace = answer["errors"][1].as_str().expect("a trace");
    assert!(
        trace.contains("Caused by: org.apache.flink.table.api.ValidationException: From line 1, column 8 to line 1, column 10: ")
            && trace.contains("did you mean 'name'?"),
        "{trace}"
    );
    let status = client.ask("GET", &format!("{operation}/status"), &Value::Null).1;
    assert_eq!(status, json!({"status": "ERROR"}));
    let properties = client.ask("GET", &client.session, &Value::Null).1;
    assert_eq!(
        properties["properties"]["unknown.option"], "x",
        "clients read their own options back"
    );
    for (method, path, body) in [
        ("GET", "/v4/nothing".to_owned(), Value::Null),
        ("GET", "/v4/sessions/none".to_owned(), Value::Null),
        ("POST", format!("{}/scripts", client.session), json!({ "script": "SELECT 1" })),
        (
            "POST",
            format!("{}/configure-session", client.session),
            json!({ "statement": "SELECT 1" }),
        ),
        ("POST", format!("{}/statements", client.session), json!({ "statement": 1 })),
        (
            "POST",
            "/v4/sessions".to_owned(),
            json!({ "properties": { "pipeline.workers": "many" } }),
        ),
    ] {
        let (status, answer) = client.ask(method, &path, &body);
        assert!(status >= 400 && answer["errors"][0].is_string(), "{path}: {status} {answer}");
    }
    let completed = client.ask(
        "GET",
        &format!("{}/complete-statement", client.session),
        &json!({ "statement": "SELECT * FROM t", "position": 15 }),
    );
    let candidates = completed.1["candidates"].as_array().expect("candidates").clone();
    assert_eq!(candidates[0], "default_catalog.default_database.t");
}

#[test]
fn the_gateway_is_for_writers_of_this_machine_only() {
    let listen =
        ["-o", "flink-gateway.listen=127.0.0.1:0", "-o", "flink-gateway.session-timeout=600"];
    let server = Place::new("gateway-guard").serve(&listen);
    let address = server.gateway.as_deref().expect("a gateway");
    let open = |headers: &str| send(address, ("POST", "/v1/sessions"), headers, "{}");
    let json_of = |token: &str| {
        format!("content-type: application/json\r\nauthorization: Bearer {token}\r\n")
    };
    let (status, answer) = open("content-type: application/json\r\n");
    assert_eq!(status, 401);
    assert!(answer["errors"][0].as_str().is_some_and(|error| error.contains("token")), "{answer}");
    assert_eq!(open(&json_of("nonsense")).0, 401);
    assert_eq!(open(&json_of(&server.token("looks", "read"))).0, 403);
    let token = server.token("writes", "write");
    assert_eq!(open(&json_of(&token)).0, 200);
    let bearer = format!("authorization: Bearer {token}\r\n");
    assert_eq!(open(&format!("{bearer}content-type: text/plain\r\n")).0, 415);
    let origin = "origin: http://evil.example\r\n";
    assert_eq!(open(&format!("{}{origin}", json_of(&token))).0, 403);
    for path in ["/", "/healthz", "/v1/jobs", "/metrics"] {
        let (status, answer) = send(address, ("GET", path), &bearer, "");
        assert_eq!(status, 404, "{path}: {answer}");
    }
    // A name that was made to lead here, and a proxy that lets others in.
    let trusting = Place::new("gateway-trust").serve(&OPEN);
    let address = trusting.gateway.as_deref().expect("a gateway");
    let foreign =
        raw_at(address, "GET /v1/info HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    assert_eq!(send(address, ("GET", "/v1/info"), "", "").0, 200);
    assert_eq!(send(address, ("GET", "/v1/info"), "x-forwarded-for: 192.0.2.1\r\n", "").0, 401);
}

#[test]
fn sessions_that_nobody_uses_are_closed() {
    let timeout = ["-o", "flink-gateway.session-timeout=0.2"];
    let server = Place::new("gateway-idle").serve(&[&OPEN[..], &timeout].concat());
    let client = Client::open(&server, json!({}));
    let begun = Instant::now();
    // Asking keeps a session in use, so a question comes only once it can have been closed.
    std::thread::sleep(std::time::Duration::from_secs(6));
    while client.ask("GET", &client.session, &Value::Null).0 != 404 {
        assert!(begun.elapsed() < PATIENCE, "the session stays");
        std::thread::sleep(std::time::Duration::from_secs(6));
    }
}

#[test]
fn a_compiled_plan_is_a_job_with_the_name_of_its_file() {
    let place = Place::new("gateway-plans");
    let server = place.serve(&OPEN);
    let client = Client::open(&server, json!({ "table.dml-sync": "true" }));
    for (name, path) in [("t", "in.csv"), ("o", "out.csv")] {
        let table = format!(
            "CREATE TABLE {name} (x BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}')"
        );
        client.run(&table).expect("declared");
    }
    client.run("INSERT INTO t VALUES (1), (2)").expect("written");
    let compile = "COMPILE PLAN 'double.json' FOR INSERT INTO o SELECT x * 2 FROM t";
    assert_eq!(client.fields(compile), [json!(["OK"])]);
    let again = client.run(compile).expect_err("the file is there");
    assert!(again.contains("table.plan.force-recompile"), "{again}");
    // Of a session that has declared nothing.
    let other = Client::open(&server, json!({ "table.dml-sync": "true" }));
    let id = other.fields("EXECUTE PLAN 'double.json'")[0][0].clone();
    assert_eq!(id.as_str().map(str::len), Some(32));
    assert_eq!(place.numbers("out.csv"), [2, 4]);
    assert_eq!(server.job("insert-into-double")["state"], "finished");
    let missing = other.run("EXECUTE PLAN 'no.json'").expect_err("no such file");
    assert!(missing.contains("there is no such file"), "{missing}");
    assert_eq!(other.fields("SHOW JARS"), [] as [Value; 0]);
    let refused = other.run("ADD JAR '/nowhere/x.jar'").expect_err("outside");
    assert!(refused.contains("outside the allowed folders"), "{refused}");
}

#[test]
fn a_materialized_table_is_read_suspended_resumed_and_given_another_query() {
    let place = Place::new("gateway-materialized");
    let server = place.serve(&[&OPEN[..], &["-o", "snapshots.interval=100 ms"]].concat());
    let client = Client::open(&server, json!({ "pipeline.name": "bank" }));
    client.fields(
        "CREATE TABLE entries (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
           'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '100000000')",
    );
    client.fields(
        "CREATE MATERIALIZED TABLE balances (PRIMARY KEY (account) NOT ENFORCED) AS
           SELECT MOD(n, 10) AS account, COUNT(*) AS entries FROM entries GROUP BY MOD(n, 10)",
    );
    let question = "SELECT SUM(entries) FROM bank.balances WHERE entries > 0";
    let total = |client: &Client<'_>| -> i64 {
        let rows = client.run(question).map(|(_, rows)| rows).unwrap_or_default();
        let number = rows.last().map(|row| row["fields"][0].clone()).unwrap_or_default();
        number.as_i64().or_else(|| number.as_str()?.trim().parse().ok()).unwrap_or(0)
    };
    let await_more = |than: i64| {
        let begun = Instant::now();
        // Another session sees it, too.
        let other = Client::open(&server, json!({ "execution.runtime-mode": "batch" }));
        loop {
            let found = total(&other);
            if found > than {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{found}: {:?}", other.run(question));
        }
    };
    await_more(100);
    assert_eq!(client.fields("ALTER MATERIALIZED TABLE balances SUSPEND"), [json!(["OK"])]);
    server.await_state("bank", "stopped");
    let held = await_more(0);
    assert_eq!(await_more(held - 1), held, "the last version stays, and nothing is added");
    client.fields("ALTER MATERIALIZED TABLE bank.balances RESUME;");
    server.await_state("bank", "running");
    await_more(held);
    // The aggregate is another one: its state would be dropped, and nobody has said so.
    let changed = "ALTER MATERIALIZED TABLE balances AS
        SELECT MOD(n, 20) AS account, COUNT(*) AS entries FROM entries GROUP BY MOD(n, 20)";
    let refused = client.run(changed).expect_err("state is at stake");
    assert!(refused.contains("drop-state"), "{refused}");
    let narrower = "ALTER MATERIALIZED TABLE balances AS
        SELECT MOD(n, 10) AS account, COUNT(*) AS entries FROM entries GROUP BY MOD(n, 10) HAVING COUNT(*) > 0";
    client.fields(narrower);
    server.await_job("bank", "at revision 2", |job| {
        job["revision"] == 2 && job["state"] == "running"
    });
    for (statement, why) in [
        ("ALTER MATERIALIZED TABLE balances REFRESH", "nothing to refresh"),
        ("ALTER MATERIALIZED TABLE nowhere SUSPEND", "no job of this server keeps"),
        ("ALTER MATERIALIZED TABLE other.balances SUSPEND", "no job of this server keeps"),
    ] {
        let refused = client.run(statement).expect_err(statement);
        assert!(refused.contains(why), "{refused}");
    }
    server.terminate();
}
