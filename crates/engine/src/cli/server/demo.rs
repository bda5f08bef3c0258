//! `thalweg demo`: a server with a job over departures that come out of order, to look at.
//!
//! The departures are made here, by a thread for each airport, and read by the job over a
//! connection each. So an airport can fall silent, as a real input does, and nothing has to be
//! downloaded.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use thalweg_core::shim::{Clock, SplitMix64, SystemClock};
use thalweg_core::text::format_timestamp_millis;
use thalweg_core::{Error, Result};
use thalweg_server::client::{Client, Place};
use thalweg_server::{Config, Serving};

use super::super::server_arguments::{DemoArguments, DemoCommand};
use super::{ended, print, refuse, say};

/// The airports that departures are of.
const AIRPORTS: [&str; 3] = ["ewr", "jfk", "lga"];
/// The one that falls silent.
const SILENT: &str = "jfk";
/// How often an airport has a departure.
const EVERY: Duration = Duration::from_millis(50);
/// How long results have to be held back until it shows.
const SHOWS_AFTER: Duration = Duration::from_secs(15);
/// The file that says who is silent, and until when.
const SILENCE: &str = "silence";
/// How many seconds the job waits for departures that are late.
const WAIT_S: u32 = 5;

/// `thalweg demo`
pub fn demo(arguments: &DemoArguments) -> u8 {
    let done = match &arguments.command {
        None => run(arguments).map(|()| 0),
        Some(DemoCommand::Wait { seconds }) => wait(arguments, *seconds),
        Some(DemoCommand::Why { seconds }) => why(arguments, *seconds),
    };
    ended(done)
}

fn run(arguments: &DemoArguments) -> Result<()> {
    let folder = &arguments.folder;
    if folder.exists() {
        return Err(Error::plan(format!("{} is there", folder.display()))
            .hint("another demo runs here, or was killed: remove the folder, or name another one with --dir"));
    }
    let flags = [("listen", arguments.listen.as_str()), ("log.format", "off")];
    let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::read(folder, None, std::env::vars(), &flags)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ports = AIRPORTS.iter().map(|airport| airport_at(airport, folder, &is_over));
    let ports = ports.collect::<Result<Vec<u16>>>()?;
    let opens = !arguments.no_open;
    let served = super::serve::serve_config(config, move |serving| {
        let begun = begin(serving, &ports, opens);
        if let Err(error) = begun {
            say(&format!("error: {error}\n"));
        }
    });
    is_over.store(true, Ordering::SeqCst);
    // It was made here, and holds nothing that anybody needs.
    let _ = std::fs::remove_dir_all(folder);
    served
}

/// Listens for the job; departures of the airport come by each connection. The port.
fn airport_at(airport: &'static str, folder: &Path, is_over: &Arc<AtomicBool>) -> Result<u16> {
    let failed = |error| Error::io(format!("can't listen for the job: {error}"));
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let (silence, is_over) = (folder.join(SILENCE), Arc::clone(is_over));
    let body = move || {
        for stream in listener.incoming() {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            // The job reconnects; it is cut off when it ends.
            if let Ok(stream) = stream {
                let _ = depart(airport, stream, &silence, &is_over);
            }
        }
    };
    let thread = std::thread::Builder::new().name(format!("airport-{airport}")).spawn(body);
    thread.map(|_| port).map_err(failed)
}

/// Sends departures until the other side has gone.
fn depart(
    airport: &str,
    mut stream: TcpStream,
    silence: &Path,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    let clock = SystemClock::new();
    let mut random = SplitMix64::new(clock.wall_ms() as u64 ^ u64::from(airport.as_bytes()[0]));
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        sleep(EVERY);
        let now_ms = clock.wall_ms();
        if is_silent(airport, silence, now_ms) {
            continue;
        }
        number += 1;
        let departed = format_timestamp_millis(now_ms - disorder_ms(&mut random), 3);
        let delay = random.below(60) as i64 - 10;
        let flight = format!("{}-{number}", airport.to_uppercase());
        let line = json!({ "departed": departed, "flight": flight, "delay": delay });
        stream.write_all(format!("{line}\n").as_bytes())?;
    }
    Ok(())
}

/// How much later than it departed a flight is reported: mostly at once, some much later.
fn disorder_ms(random: &mut SplitMix64) -> i64 {
    let most_ms = match random.below(100) {
        0..80 => 1_000,
        80..95 => 6_000,
        _ => 25_000,
    };
    random.below(most_ms) as i64
}

fn is_silent(airport: &str, silence: &Path, now_ms: i64) -> bool {
    let text = std::fs::read_to_string(silence).unwrap_or_default();
    let (who, until_ms) = text.trim().split_once(' ').unwrap_or_default();
    who == airport && until_ms.parse::<i64>().is_ok_and(|until_ms| now_ms < until_ms)
}

/// The statements of the job.
fn statements(ports: &[u16]) -> String {
    let table = |(airport, port): (&&str, &u16)| {
        format!(
            "CREATE TABLE {airport} (\n  departed TIMESTAMP(3), flight STRING, delay INT,\n  \
             WATERMARK FOR departed AS departed - INTERVAL '${{wait}}' SECOND\n) WITH (\n  \
             'connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{port}', 'format' = 'json'\n);\n\n"
        )
    };
    let tables: String = AIRPORTS.iter().zip(ports).map(table).collect();
    let select = |airport: &&str| {
        let origin = airport.to_uppercase();
        format!("SELECT '{origin}' AS origin, departed, flight, delay FROM {airport}")
    };
    let all: Vec<String> = AIRPORTS.iter().map(select).collect();
    format!(
        "-- Departures of three airports, which come out of order. The job waits ${{wait}} s for late ones:\n\
         -- `thalweg demo wait 20` changes that.\n\
         SET 'watermark.idle-timeout' = '1 h';\n\n{tables}\
         CREATE VIEW flights AS\n{};\n\n\
         CREATE TABLE departures (origin STRING, window_end TIMESTAMP(3), flights BIGINT, mean_delay INT)\n\
         WITH ('connector' = 'blackhole');\n\n\
         INSERT INTO departures\n\
         SELECT origin, window_end, COUNT(*), AVG(delay)\n\
         FROM TUMBLE(TABLE flights, DESCRIPTOR(departed), INTERVAL '10' SECOND)\n\
         GROUP BY origin, window_start, window_end;\n",
        all.join("\nUNION ALL\n")
    )
}

/// The server takes connections: makes the job, and says where to look.
fn begin(serving: &Serving, ports: &[u16], opens: bool) -> Result<()> {
    let client = Client::new(Place::Socket(serving.socket.clone()))?;
    let body = json!({
        "sql": statements(ports), "params": { "wait": WAIT_S.to_string() }, "desired": "running",
    });
    let put = client.ask("PUT", "/v1/jobs/flights", Some(&body), false)?;
    if let Some(problem) = put.problem() {
        return refuse(&problem, false).map(drop);
    }
    let token = json!({ "name": "demo", "role": "admin" });
    let token = client.ask("POST", "/v1/tokens", Some(&token), false)?;
    let token = token.body["token"].as_str().unwrap_or_default().to_owned();
    let Some(address) = serving.address else { return Ok(()) };
    let folder = serving.socket.parent().unwrap_or(Path::new("")).display();
    let page = format!("http://{address}/#token={token}");
    print(&format!(
        "departures of three airports, out of order; the job waits {WAIT_S} s for late ones\n\
         page: {page}\n\n\
         in another terminal, in this folder:\n  \
         thalweg demo wait 20      wait longer: fewer rows are late, and results come later\n  \
         thalweg demo why          one airport falls silent: who holds the results back?\n  \
         thalweg late flights --data-dir {folder}\n  \
         thalweg top --data-dir {folder}\n\n\
         Ctrl-C ends it, and removes its folder\n"
    ))?;
    if opens {
        open_page(&page);
    }
    Ok(())
}

/// Opens a page in the browser of whoever sits here. Where there is none the address is enough.
fn open_page(page: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(command.spawn());
}

/// A client of the demo that runs.
fn client(folder: &Path) -> Result<Client> {
    let socket: PathBuf = folder.join("thalweg.sock");
    if !socket.exists() {
        return Err(Error::plan(format!("no demo runs in {}", folder.display())).hint(
            "begin one with `thalweg demo` in another terminal, or name its folder with --dir",
        ));
    }
    Client::new(Place::Socket(socket))
}

/// Changes for how long the job waits.
fn wait(arguments: &DemoArguments, seconds: u32) -> Result<u8> {
    let client = client(&arguments.folder)?;
    let job = client.ask("GET", "/v1/jobs/flights", None, false)?;
    let number = job.body["revision"].as_u64().unwrap_or(1);
    let revision =
        client.ask("GET", &format!("/v1/jobs/flights/revisions/{number}"), None, false)?;
    let sql = revision.body["sql"].as_str().unwrap_or_default();
    let body =
        json!({ "sql": sql, "params": { "wait": seconds.to_string() }, "desired": "running" });
    let put = client.ask("PUT", "/v1/jobs/flights?approve=drop-state", Some(&body), true)?;
    if let Some(problem) = put.problem() {
        return refuse(&problem, false);
    }
    print(&format!(
        "the job waits {seconds} s now, from a snapshot on: see how many rows are late, and when results come\n"
    ))?;
    Ok(0)
}

/// Silences an airport, and asks who holds the results back.
fn why(arguments: &DemoArguments, seconds: u32) -> Result<u8> {
    let client = client(&arguments.folder)?;
    let until_ms = SystemClock::new().wall_ms() + i64::from(seconds) * 1000;
    let file = arguments.folder.join(SILENCE);
    std::fs::write(&file, format!("{SILENT} {until_ms}\n"))
        .map_err(|error| Error::io(format!("can't write {}: {error}", file.display())))?;
    print(&format!(
        "{SILENT} is silent for {seconds} s from now on; what becomes of the results?\n\n"
    ))?;
    sleep(SHOWS_AFTER.min(Duration::from_secs(u64::from(seconds))));
    let found = client.ask("GET", "/v1/jobs/flights/why", None, false)?;
    if let Some(problem) = found.problem() {
        return refuse(&problem, false);
    }
    print(found.body["text"].as_str().unwrap_or_default())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg::session::Session;

    #[test]
    fn the_statements_are_right_for_each_wait() {
        let sql = statements(&[1, 2, 3]).replace("${wait}", "5");
        assert_eq!(Session::default().validate(&sql).expect("valid"), 7, "{sql}");
    }

    #[test]
    fn most_rows_come_soon_and_some_much_later() {
        let mut random = SplitMix64::new(7);
        let all: Vec<i64> = (0..10_000).map(|_| disorder_ms(&mut random)).collect();
        let later = |ms: i64| all.iter().filter(|&&disorder| disorder > ms).count();
        assert!((1_000..2_500).contains(&later(1_000)), "{}", later(1_000));
        assert!((200..700).contains(&later(5_000)), "{}", later(5_000));
        assert!(later(20_000) > 0 && later(25_000) == 0);
    }

    #[test]
    fn an_airport_is_silent_until_its_time() {
        let file = std::env::temp_dir().join(format!("thalweg-silence-{}", std::process::id()));
        std::fs::write(&file, "jfk 2000\n").expect("written");
        let silent = |airport, now_ms| is_silent(airport, &file, now_ms);
        assert!(silent("jfk", 1_999) && !silent("jfk", 2_000) && !silent("lga", 0));
        std::fs::remove_file(&file).expect("there");
        assert!(!silent("jfk", 0));
    }
}
