//! What the server counts of itself, for Prometheus: requests, streams, the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use thalweg_monitoring::exposition::Families;
use thalweg_runtime::metrics::TimeBuckets;

/// A route as it is declared, a method, and a status.
type Request = (String, String, u16);

/// What is counted.
#[derive(Default)]
pub struct Meters {
    requests: Mutex<BTreeMap<Request, TimeBuckets>>,
    /// Messages that slow readers of streams have lost.
    pub dropped: Arc<AtomicU64>,
}

impl Meters {
    /// A request was answered. Routes are those that are declared, so there is a bound.
    pub fn request(&self, route: &str, method: &str, status: u16, time_ns: u64) {
        let mut requests = self.requests.lock().expect("no panic under this lock");
        let of = (route.to_owned(), method.to_owned(), status);
        requests.entry(of).or_default().record_us(time_ns / 1_000);
    }

    /// Adds what was counted.
    pub fn add_to(&self, families: &mut Families) {
        let requests = self.requests.lock().expect("no panic under this lock");
        for ((route, method, status), times) in &*requests {
            let labels = [route.as_str(), method.as_str(), &status.to_string()];
            let times = (&times.distribution()).into();
            families.add_times("thalweg_http_request_duration_seconds", &labels, &times);
        }
        let dropped = self.dropped.load(Ordering::Relaxed) as f64;
        families.add("thalweg_live_dropped_messages_total", &[], dropped);
    }
}

/// Adds what the system knows of the process, as far as it says so.
pub fn add_process(families: &mut Families, began_ms: i64) {
    let cpu = cpu_time::ProcessTime::try_now().ok().map(|time| time.as_duration().as_secs_f64());
    let resident = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
        let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024.0)
    });
    // The folder is open itself while it is read.
    let open = std::fs::read_dir("/proc/self/fd").ok();
    let open = open.map(|entries| entries.count().saturating_sub(1) as f64);
    let began = Some(began_ms as f64 / 1_000.0);
    for (name, value) in [
        ("process_cpu_seconds_total", cpu),
        ("process_resident_memory_bytes", resident),
        ("process_open_fds", open),
        ("process_start_time_seconds", began),
    ] {
        value.iter().for_each(|&value| families.add(name, &[], value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_the_process_have_their_metrics() {
        let meters = Meters::default();
        meters.request("/v1/jobs/{job}", "GET", 200, 3_000_000);
        meters.request("/v1/jobs/{job}", "GET", 200, 4_000_000);
        meters.request("/v1/jobs/{job}", "GET", 404, 1_000);
        meters.dropped.fetch_add(7, Ordering::Relaxed);
        let mut families = Families::new();
        meters.add_to(&mut families);
        add_process(&mut families, 1_500);
        let text = families.text();
        for line in [
            "thalweg_http_request_duration_seconds_count{route=\"/v1/jobs/{job}\",method=\"GET\",code=\"200\"} 2",
            "thalweg_http_request_duration_seconds_count{route=\"/v1/jobs/{job}\",method=\"GET\",code=\"404\"} 1",
            "thalweg_live_dropped_messages_total 7",
            "process_start_time_seconds 1.5",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        if cfg!(target_os = "linux") {
            for name in [
                "process_cpu_seconds_total ",
                "process_resident_memory_bytes ",
                "process_open_fds ",
            ] {
                assert!(text.contains(name), "{name}");
            }
        }
    }
}
