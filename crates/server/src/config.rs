//! Options of a server, each with where its value came from.
//!
//! Flags win over the environment (`THALWEG_SERVER__START__CONCURRENCY`), that wins over
//! `server.toml`, and that over the defaults. An option that does not exist is an error.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_core::{Error, Result};

use crate::journal::LogFormat;

/// What variables of the environment begin with.
const VARIABLES: &str = "THALWEG_SERVER__";

/// What a value has to be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    List,
    Count(u64, u64),
    Seconds,
    Size,
    Switch,
    OneOf(&'static [&'static str]),
}

/// An option.
struct Key {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    about: &'static str,
}

/// A table of options: of each its name, its kind and its default, and what people read.
macro_rules! keys {
    ($($name:literal: $kind:ident $(($($of:expr),*))? = $default:literal => $about:literal;)*) => {
        [$(Key {
            name: $name,
            default: $default,
            kind: Kind::$kind $(($($of),*))?,
            about: $about,
        }),*]
    };
}

const KEYS: [Key; 26] = keys! {
    "listen": Text = "127.0.0.1:7373" => "address and port of the REST interface; empty: none";
    "listen-unix": Text = ""
        => "path of the socket for commands; default: thalweg.sock in the data directory";
    "insecure-no-tls": Switch = "false"
        => "allows `listen` at an address that other machines reach, without TLS";
    "host-names": List = "" => "names besides localhost by which browsers may call the server";
    "jobs-dir": Text = ""
        => "a folder of .sql files, each a job; such jobs cannot be changed over REST";
    "allowed-roots": List = ""
        => "folders that statements may read and write besides `files` in the data directory";
    "allowed-hosts": List = "*; !169.254.0.0/16; !fe80::/10; !100.100.100.200; !168.63.129.16; !192.0.0.192; !fd00:ec2::254; \
         !metadata.google.internal"
        => "hosts that connectors may talk to, as network.allowed-targets lists them; the default leaves out addresses of the \
         link and those where clouds keep secrets of machines";
    "allowed-connectors": List = "*" => "connectors that tables may name";
    "flink-gateway.listen": Text = ""
        => "address and port of the SQL gateway for clients of Flink, such as 127.0.0.1:8083; empty: none";
    "flink-gateway.trust-loopback": Switch = "false"
        => "clients of Flink on this machine need no token, where `flink-gateway.listen` is an address that only they reach";
    "flink-gateway.session-timeout": Seconds = "600"
        => "seconds until a session of the gateway that nobody uses is closed, with its queries";
    "metrics.public": Switch = "true"
        => "programs of this machine may read /metrics without a token, where `listen` is an address that only they reach";
    "log.format": OneOf(&LogFormat::NAMES) = "text"
        => "how lines on standard error are written: text, json, or off";
    "otlp.endpoint": Text = ""
        => "address of a collector of OpenTelemetry that metrics and traces are sent to, such as http://127.0.0.1:4318; empty: none";
    "otlp.interval": Seconds = "10" => "seconds from one sending of metrics to the next";
    "otlp.service-name": Text = "thalweg" => "what the server is called there";
    "workers": Count(0, 1024) = "0" => "worker threads; 0: one for each core";
    "memory.limit": Size = "70%" => "what all jobs may keep in memory";
    "job.memory-limit": Size = "25%" => "the share of `memory.limit` of a job that names none";
    "admission.overcommit": Text = "1.0"
        => "how far the limits of running jobs may exceed `memory.limit` in sum";
    "start.concurrency": Count(1, 1024) = "4" => "how many jobs are started at a time";
    "start.deaths-max": Count(0, 1_000_000) = "3"
        => "a job that the process died so often of is not started again; 0: it always is";
    "snapshots.interval": Text = "10 s"
        => "how often snapshots of a job are taken that names no interval";
    "stop.timeout": Seconds = "60" => "seconds until a job that is stopped is cut off";
    "shutdown.timeout": Seconds = "60" => "seconds until jobs are cut off when the server ends";
    "upgrade.confirm-within": Seconds = "60"
        => "seconds in which new statements have to run and keep a snapshot";
};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Nobody has set it.
    Default,
    /// The file of options.
    File(String),
    /// A variable of the environment.
    Variable(String),
    /// The command line.
    Flag,
}

/// An option as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where that came from.
    pub origin: Origin,
    /// What it is.
    pub about: String,
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// No job starts by itself.
    pub hold: bool,
    /// A folder that the files of the page are read from, instead of those of the program.
    pub page_dir: Option<PathBuf>,
    values: BTreeMap<&'static str, (String, Origin)>,
    /// Headers of requests to a collector, which may be secrets: no option that is shown.
    #[cfg(feature = "otlp")]
    otlp_headers: String,
}

/// Where metrics and traces are sent.
#[cfg(feature = "otlp")]
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// The address, without the path.
    pub endpoint: String,
    /// What requests have besides.
    pub headers: Vec<(String, String)>,
    /// From one sending of metrics to the next.
    pub interval: Duration,
    /// What the server is called.
    pub service_name: String,
}

impl Config {
    /// The options of a server: from the file, which need not be there unless it was named, from
    /// the environment, and from flags.
    ///
    /// # Errors
    /// If an option does not exist or its value is wrong.
    pub fn read(
        data_dir: &Path,
        file: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> Result<Config> {
        let defaults = KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Origin::Default)));
        let mut config = Config {
            data_dir: data_dir.to_owned(),
            hold: false,
            page_dir: None,
            values: defaults.collect(),
            #[cfg(feature = "otlp")]
            otlp_headers: String::new(),
        };
        config.read_file(file)?;
        for (name, value) in variables {
            config.set_by_opentelemetry(&name, &value)?;
            let Some(key) = name.strip_prefix(VARIABLES) else { continue };
            let key = key.to_lowercase().replace("__", ".").replace('_', "-");
            config.set(&key, &value, Origin::Variable(name))?;
        }
        for (key, value) in flags {
            config.set(key, value, Origin::Flag)?;
        }
        config.check()?;
        Ok(config)
    }

    fn read_file(&mut self, file: Option<&Path>) -> Result<()> {
        let default = self.data_dir.join("server.toml");
        let path = file.unwrap_or(&default);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_none() => {
                return Ok(());
            }
            Err(error) => {
                return Err(Error::plan(format!("can't read {}: {error}", path.display())));
            }
        };
        let shown = path.display().to_string();
        let table: toml::Table =
            text.parse().map_err(|error| Error::plan(format!("{shown} is no TOML: {error}")))?;
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (key, value) in flat {
            let set = self.set(&key, &value, Origin::File(shown.clone()));
            set.map_err(|error| error.in_file(shown.clone()))?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str, origin: Origin) -> Result<()> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let near = KEYS.iter().min_by_key(|key| strsim::damerau_levenshtein(key.name, name));
            let help = match near {
                Some(near) if strsim::damerau_levenshtein(near.name, name) <= 4 => {
                    format!("did you mean '{}'?", near.name)
                }
                _ => "`thalweg serve --print-config` lists the options".to_owned(),
            };
            return Err(Error::plan(format!("a server has no option '{name}'")).hint(help));
        };
        check_value(key, value)?;
        self.values.insert(key.name, (value.to_owned(), origin));
        Ok(())
    }

    /// Takes a variable that all programs read that send to a collector of OpenTelemetry.
    #[cfg(feature = "otlp")]
    fn set_by_opentelemetry(&mut self, name: &str, value: &str) -> Result<()> {
        let seconds = value.parse().map_or(f64::NAN, |ms: f64| ms / 1_000.0).to_string();
        let (key, value) = match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => ("otlp.endpoint", value),
            "OTEL_SERVICE_NAME" => ("otlp.service-name", value),
            "OTEL_METRIC_EXPORT_INTERVAL" => ("otlp.interval", seconds.as_str()),
            "OTEL_EXPORTER_OTLP_HEADERS" => {
                value.clone_into(&mut self.otlp_headers);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.set(key, value, Origin::Variable(name.to_owned()))
    }

    /// These variables say nothing to a program that sends nothing.
    #[cfg(not(feature = "otlp"))]
    fn set_by_opentelemetry(&mut self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    /// Checks what concerns several options.
    fn check(&self) -> Result<()> {
        if cfg!(not(feature = "otlp")) && !self.text("otlp.endpoint").is_empty() {
            return Err(Error::plan(
                "this program was built without OTLP, so 'otlp.endpoint' has no use",
            )
            .hint("build it with the feature `otlp`, or let Prometheus read /metrics"));
        }
        let listens = [self.listen()?, self.gateway_listen()?];
        let mut open = listens.into_iter().flatten().filter(|own| !own.ip().is_loopback());
        match open.next() {
            Some(address) if self.text("insecure-no-tls") != "true" => Err(Error::plan(format!(
                "other machines reach {address}, and tokens would cross the network in the clear"
            ))
            .hint("listen at 127.0.0.1 behind a proxy that speaks TLS, or set 'insecure-no-tls'")),
            _ => Ok(()),
        }
    }

    /// All options.
    pub fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &Key| {
            let (value, origin) = &self.values[key.name];
            let (name, about) = (key.name.to_owned(), key.about.to_owned());
            ConfigEntry { name, value: value.clone(), origin: origin.clone(), about }
        };
        KEYS.iter().map(entry).collect()
    }

    /// How lines on standard error are written.
    pub fn log_format(&self) -> LogFormat {
        LogFormat::of(self.text("log.format").trim()).unwrap_or(LogFormat::Text)
    }

    /// Where metrics and traces are sent, if anywhere.
    #[cfg(feature = "otlp")]
    pub fn otlp(&self) -> Option<OtlpConfig> {
        let endpoint = self.text("otlp.endpoint").trim();
        let headers = self.otlp_headers.split(',').filter_map(|pair| pair.split_once('='));
        (!endpoint.is_empty()).then(|| OtlpConfig {
            endpoint: endpoint.to_owned(),
            headers: headers
                .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
                .collect(),
            interval: self.seconds("otlp.interval").max(Duration::from_millis(100)),
            service_name: self.text("otlp.service-name").to_owned(),
        })
    }

    fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |(value, _)| value)
    }

    fn list(&self, name: &str) -> Vec<String> {
        let entries = self.text(name).split(';').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::to_owned).collect()
    }

    fn count(&self, name: &str) -> u64 {
        self.text(name).trim().parse().unwrap_or_default()
    }

    fn seconds(&self, name: &str) -> Duration {
        Duration::try_from_secs_f64(self.text(name).trim().parse().unwrap_or_default())
            .unwrap_or_default()
    }

    /// Where to listen for HTTP; `None`: nowhere.
    ///
    /// # Errors
    /// If it is no address.
    pub fn listen(&self) -> Result<Option<SocketAddr>> {
        self.address("listen")
    }

    /// Where to listen for clients of Flink; `None`: nowhere.
    ///
    /// # Errors
    /// If it is no address.
    pub fn gateway_listen(&self) -> Result<Option<SocketAddr>> {
        self.address("flink-gateway.listen")
    }

    fn address(&self, key: &str) -> Result<Option<SocketAddr>> {
        let text = self.text(key).trim();
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Error::plan(format!("'{key}' = '{text}' is no address"))
                .hint("addresses look like 127.0.0.1:7373 or [::1]:7373")
        })
    }

    /// True if clients of Flink on this machine need no token.
    pub fn gateway_trusts_loopback(&self) -> bool {
        self.text("flink-gateway.trust-loopback") == "true"
    }

    /// Until a session of the gateway that nobody uses is closed.
    pub fn gateway_session_timeout(&self) -> Duration {
        self.seconds("flink-gateway.session-timeout")
    }

    /// The socket of commands.
    pub fn socket(&self) -> PathBuf {
        match self.text("listen-unix") {
            "" => self.data_dir.join("thalweg.sock"),
            path => path.into(),
        }
    }

    /// Names by which browsers may call the server.
    pub fn host_names(&self) -> Vec<String> {
        let own = ["localhost", "127.0.0.1", "[::1]"];
        own.iter().map(|&name| name.to_owned()).chain(self.list("host-names")).collect()
    }

    /// The folder of jobs that are files.
    pub fn jobs_dir(&self) -> Option<PathBuf> {
        Some(self.text("jobs-dir")).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// Folders that statements may touch.
    pub fn allowed_roots(&self) -> Vec<PathBuf> {
        let files = self.data_dir.join("files");
        let others = self.list("allowed-roots").into_iter().map(PathBuf::from);
        std::iter::once(files).chain(others).chain(self.jobs_dir()).collect()
    }

    /// Hosts that connectors may talk to; `None`: all.
    pub fn allowed_hosts(&self) -> Option<String> {
        Some(self.text("allowed-hosts").to_owned()).filter(|hosts| hosts.trim() != "*")
    }

    /// True if whoever is on this machine may read metrics.
    pub fn metrics_are_public(&self) -> bool {
        self.text("metrics.public") == "true"
    }

    /// Connectors that tables may name; `None`: all.
    pub fn allowed_connectors(&self) -> Option<Vec<String>> {
        Some(self.list("allowed-connectors")).filter(|list| list.as_slice() != ["*"])
    }

    /// Worker threads.
    pub fn workers(&self) -> usize {
        match self.count("workers") {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => usize::try_from(count).unwrap_or(1),
        }
    }

    /// What all jobs may keep in memory, in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        let available = thalweg_runtime::memory::available_bytes() as u64;
        size(self.text("memory.limit"), available).unwrap_or(available)
    }

    /// What a job that names no limit may keep in memory, in bytes.
    pub fn job_memory_limit_bytes(&self) -> u64 {
        let all = self.memory_limit_bytes();
        size(self.text("job.memory-limit"), all).unwrap_or(all)
    }

    /// What the limits of running jobs may come to, in bytes.
    pub fn admitted_bytes(&self) -> u64 {
        let factor: f64 = self.text("admission.overcommit").trim().parse().unwrap_or(1.0);
        (self.memory_limit_bytes() as f64 * factor.max(0.0)) as u64
    }

    /// How many jobs are started at a time.
    pub fn start_concurrency(&self) -> usize {
        usize::try_from(self.count("start.concurrency")).unwrap_or(1).max(1)
    }

    /// After how many deaths of the process a job is not started again; `None`: it always is.
    pub fn deaths_max(&self) -> Option<u32> {
        u32::try_from(self.count("start.deaths-max")).ok().filter(|&count| count > 0)
    }

    /// How often snapshots are taken.
    pub fn snapshot_interval(&self) -> &str {
        self.text("snapshots.interval")
    }

    /// Until a job that is stopped is cut off.
    pub fn stop_timeout(&self) -> Duration {
        self.seconds("stop.timeout")
    }

    /// Until jobs are cut off when the server ends.
    pub fn shutdown_timeout(&self) -> Duration {
        self.seconds("shutdown.timeout")
    }

    /// In which time an upgrade has to prove itself.
    pub fn confirm_within(&self) -> Duration {
        self.seconds("upgrade.confirm-within")
    }
}

/// Names of nested tables are put together by dots.
fn flatten(prefix: &str, table: &toml::Table, flat: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, flat),
            toml::Value::Array(items) => {
                let items: Vec<String> = items.iter().map(plain).collect();
                flat.push((name, items.join(";")));
            }
            other => flat.push((name, plain(other))),
        }
    }
}

fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn check_value(key: &Key, value: &str) -> Result<()> {
    let value = value.trim();
    let number = || value.parse::<u64>().ok();
    let is_right = match key.kind {
        Kind::Text | Kind::List => true,
        Kind::Count(least, most) => number().is_some_and(|number| (least..=most).contains(&number)),
        Kind::Seconds => value.parse::<f64>().is_ok_and(|seconds| (0.0..=1e6).contains(&seconds)),
        Kind::Size => size(value, 1).is_some(),
        Kind::Switch => matches!(value, "true" | "false"),
        Kind::OneOf(names) => names.contains(&value),
    };
    let wanted = match key.kind {
        Kind::Count(least, most) => format!("a number from {least} to {most}"),
        Kind::Seconds => "a number of seconds".to_owned(),
        Kind::Size => "a size such as 512mb or 50%".to_owned(),
        Kind::OneOf(names) => format!("one of {}", names.join(", ")),
        _ => "true or false".to_owned(),
    };
    match is_right {
        true => Ok(()),
        false => Err(Error::plan(format!("'{}' = '{value}' is not {wanted}", key.name))),
    }
}

/// A size in bytes, or a share of what there is.
pub fn size(text: &str, whole: u64) -> Option<u64> {
    let text = text.trim().to_lowercase();
    if let Some(percent) = text.strip_suffix('%') {
        let percent: u64 =
            percent.trim().parse().ok().filter(|percent| (1..=100).contains(percent))?;
        return Some(whole / 100 * percent + whole % 100 * percent / 100);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim() {
        "" | "b" => 0,
        "kb" | "k" => 10,
        "mb" | "m" => 20,
        "gb" | "g" => 30,
        "tb" | "t" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("server.toml"), file).expect("a file");
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        Config::read(folder.path(), None, owned(variables).into_iter(), &owned(flags))
    }

    #[test]
    fn flags_win_over_variables_and_those_over_the_file() {
        let file = "start.concurrency = 2\n[memory]\nlimit = \"1gb\"\n[stop]\ntimeout = 5\n";
        let variables = [("THALWEG_SERVER__START__CONCURRENCY", "3"), ("HOME", "x")];
        let config = read(file, &variables, &[("stop.timeout", "7")]).expect("valid");
        assert_eq!(config.start_concurrency(), 3);
        assert_eq!(config.memory_limit_bytes(), 1 << 30);
        assert_eq!(config.stop_timeout(), Duration::from_secs(7));
        let origin = |name: &str| {
            config.entries().into_iter().find(|entry| entry.name == name).map(|entry| entry.origin)
        };
        assert_eq!(origin("stop.timeout"), Some(Origin::Flag));
        assert!(matches!(origin("memory.limit"), Some(Origin::File(_))));
        assert!(matches!(origin("start.concurrency"), Some(Origin::Variable(_))));
        assert_eq!(origin("listen"), Some(Origin::Default));
    }

    #[test]
    fn unknown_options_are_refused_with_a_near_one() {
        let error = read("start.concurency = 2", &[], &[]).expect_err("unknown");
        assert_eq!(error.help(), Some("did you mean 'start.concurrency'?"));
        for (key, value) in [("workers", "x"), ("stop.timeout", "-1"), ("memory.limit", "0%")] {
            read("", &[], &[(key, value)]).expect_err(key);
        }
    }

    #[test]
    fn nobody_listens_to_other_machines_by_mistake() {
        read("", &[], &[("listen", "0.0.0.0:7373")]).expect_err("in the clear");
        read("", &[], &[("listen", "0.0.0.0:7373"), ("insecure-no-tls", "true")]).expect("said so");
        read("", &[], &[("listen", "[::1]:0")]).expect("loopback");
        read("", &[], &[("listen", "nowhere")]).expect_err("no address");
        read("", &[], &[("flink-gateway.listen", "0.0.0.0:8083")]).expect_err("in the clear");
        read("", &[], &[("flink-gateway.listen", "127.0.0.1:8083")]).expect("loopback");
    }
}
