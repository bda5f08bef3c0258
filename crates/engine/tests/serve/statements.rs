//! Help for whoever writes statements, and whether their tables can be reached.

use std::fs;

use serde_json::{Value, json};

use super::support::{Place, Running, numbers_job};

const JSON: &str = "content-type: application/json\r\n";

fn posted(server: &Running, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let (status, text) = server.ask("POST", path, token, JSON, &body.to_string());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_place_has_completions_and_a_text_a_layout() {
    let place = Place::new("writing");
    let server = place.serve(&[]);
    let token = server.token("reader", "read");
    let sql = "CREATE TABLE t (item STRING, n INT) WITH ('connector' = 'datagen'); SELECT CHAR_LEN FROM t";
    let offset = sql.find(" FROM").expect("a place");
    let (status, found) =
        posted(&server, "/v1/complete", &token, &json!({ "sql": sql, "offset": offset }));
    assert_eq!((status, found["from"].as_u64()), (200, Some(offset as u64 - 8)), "{found}");
    let item = &found["items"][0];
    assert_eq!((&item["label"], &item["insert"]), (&"CHAR_LENGTH".into(), &"CHAR_LENGTH(".into()));
    assert_eq!((&item["kind"], &item["detail"]), (&"function".into(), &"CHAR_LENGTH(s)".into()));
    assert!(item["info"].as_str().is_some_and(|info| info.contains("characters")), "{item}");
    let (_, found) =
        posted(&server, "/v1/complete", &token, &json!({ "sql": "SET 'pipeline.o", "offset": 15 }));
    let labels = found["items"].as_array().expect("a list").iter().map(|item| &item["label"]);
    assert!(labels.clone().any(|label| label == "pipeline.order"), "{found}");
    let (_, listed) = server.ask("GET", "/v1/functions", &token, "", "");
    assert!(listed.contains("\"signature\":\"LOG(a), LOG(base, a)\""), "{listed}");
    // A layout keeps comments, and says where a text cannot be cut into tokens.
    let (status, found) =
        posted(&server, "/v1/format", &token, &json!({ "sql": "SELECT 1 ,\n 2 -- two" }));
    assert_eq!((status, &found["sql"]), (200, &"SELECT 1, 2 -- two\n".into()), "{found}");
    let (status, found) = posted(&server, "/v1/format", &token, &json!({ "sql": "SELECT 'open" }));
    assert_eq!(
        (status, &found["diagnostics"][0]["span"]["start"]["column"]),
        (422, &8.into()),
        "{found}"
    );
    let (status, text) =
        server.ask("POST", "/v1/format", &token, "content-type: application/sql\r\n", "SELECT  1");
    assert!(status == 200 && text.ends_with("\r\n\r\nSELECT 1\n"), "{text}");
    server.terminate();
}

#[test]
fn tables_are_tried_and_nothing_is_written() {
    let place = Place::new("connect");
    let server = place.serve(&["-o", "snapshots.interval=100 ms"]);
    let writer = server.token("writer", "write");
    fs::write(place.folder.join("files/in.csv"), "tea,1\nbad,x\n").expect("an input");
    let sql = "CREATE TABLE items (item STRING, n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'in.csv',
                 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl');
               CREATE TABLE kept (item STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out.csv');
               INSERT INTO kept SELECT item FROM items;";
    let body = json!({ "sql": sql, "connect": true });
    let (status, found) = posted(&server, "/v1/validate", &writer, &body);
    assert_eq!((status, &found["is_valid"]), (200, &true.into()), "{found}");
    let of = |table: &str| {
        let all = found["connections"].as_array().expect("connections");
        let own = all.iter().find(|own| own["table"] == table);
        own.unwrap_or_else(|| panic!("{table}: {found}")).clone()
    };
    assert_eq!(
        (&of("items")["is_reached"], &of("items")["row"]["item"]),
        (&true.into(), &"tea".into())
    );
    // A file that is not there is named, and nothing is tried.
    let missing = json!({ "sql": sql.replace("in.csv", "nowhere.csv"), "connect": true });
    let (_, refused) = posted(&server, "/v1/validate", &writer, &missing);
    assert!(refused["diagnostics"].to_string().contains("nowhere.csv"), "{refused}");
    assert_eq!((&of("kept")["is_reached"], &of("kept")["role"]), (&true.into(), &"output".into()));
    let files = |folder: &std::path::Path| -> Vec<String> {
        let names = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<_> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names
    };
    assert_eq!(files(&place.folder.join("files")), ["in.csv"], "no output, no dead letters");
    // An output that a job writes cannot be claimed, and the answer says so.
    server.submit("a", &numbers_job("out.csv", 1_000_000_000, 100), &[]);
    server.await_state("a", "running");
    let (_, found) = posted(&server, "/v1/validate", &writer, &body);
    let kept = found["connections"]
        .as_array()
        .and_then(|all| all.iter().find(|own| own["table"] == "kept"));
    assert!(
        kept.is_some_and(|kept| kept["is_reached"] == false && kept["problem"].is_object()),
        "{found}"
    );
    server.await_state("a", "running");
    let reader = server.token("reader", "read");
    assert_eq!(posted(&server, "/v1/validate", &reader, &body).0, 403, "it reads rows");
    server.terminate();
}
