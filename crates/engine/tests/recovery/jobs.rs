//! A folder with inputs and a job that runs over them; what of its output is visible.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use thalweg_core::shim::SplitMix64;

const SNAPSHOTS: [&str; 5] = [
    "--quiet",
    "--set",
    "execution.checkpointing.dir=state",
    "--set",
    "execution.checkpointing.interval=20 ms",
];

/// The arguments that run `job.sql` with snapshots in the folder `state`, with more of them.
pub fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SNAPSHOTS[..], more, &["job.sql"]].concat()
}

/// Far more than anything here needs in a debug build on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Rows are so far out of order at most; the watermark of the tables follows by as much.
pub const DISORDER_MS: i64 = 3_000;

/// A folder that is empty at the start of a test.
pub struct Workspace {
    pub folder: PathBuf,
}

/// A run that continues, or has ended.
pub struct Running {
    child: Child,
    messages: PathBuf,
}

impl Workspace {
    pub fn new(test: &str) -> Workspace {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recovery").join(test);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        Workspace { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        fs::write(path, text).expect("writing a file");
    }

    /// Starts `thalweg run` with these words behind it.
    pub fn start(&self, words: &[&str]) -> Running {
        let messages = self.path("messages.txt");
        let errors = fs::File::create(&messages).expect("a file for messages");
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("run").args(words).current_dir(&self.folder).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(errors).spawn().expect("starting thalweg");
        Running { child, messages }
    }

    /// Runs to the end. What was said.
    pub fn succeed(&self, words: &[&str]) -> String {
        let (status, messages) = self.start(words).end();
        assert!(status.success(), "{words:?}: {status}: {messages}\nin {}", self.folder.display());
        messages
    }

    /// Runs to the end, which is this exit status. What was said.
    pub fn fail(&self, status: i32, words: &[&str]) -> String {
        let (found, messages) = self.start(words).end();
        assert_eq!(
            found.code(),
            Some(status),
            "{words:?}: {messages}\nin {}",
            self.folder.display()
        );
        assert!(!messages.contains("panicked at"), "{messages}");
        messages
    }

    /// The rows that readers of a folder see, parts in the order of their names.
    pub fn visible(&self, folder: &str) -> Vec<String> {
        let mut parts: Vec<PathBuf> = files(&self.path(folder));
        let is_visible = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            !name.starts_with(['.', '_']) && !name.ends_with(".partial")
        };
        parts.retain(is_visible);
        let read = |path: &PathBuf| fs::read_to_string(path).expect("a part is text");
        let texts: Vec<String> = parts.iter().map(read).collect();
        texts.iter().flat_map(|text| text.lines().map(str::to_owned)).collect()
    }

    /// The numbers of the snapshots of all jobs whose manifest is there, in order.
    pub fn snapshots(&self) -> Vec<u64> {
        let jobs = folders(&self.path("state"));
        let taken = jobs.iter().flat_map(|job| folders(&job.join("snapshots")));
        let finished = taken.filter(|folder| folder.join("manifest.json").exists());
        let number = |folder: PathBuf| folder.file_name()?.to_str()?.parse().ok();
        let mut numbers: Vec<u64> = finished.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}

impl Running {
    /// Waits for the end. Its status and what was said.
    pub fn end(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return (status, self.messages());
            }
            if begun.elapsed() > PATIENCE {
                self.kill();
                panic!("thalweg hangs: {}", self.messages());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("asking for thalweg")
    }

    /// Ends the process as a power failure would, but for what the system holds in its caches.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("waiting for thalweg");
    }

    /// Sends a signal: `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        let words = [format!("-{name}"), self.child.id().to_string()];
        assert!(Command::new("kill").args(words).status().expect("the command kill").success());
    }

    pub fn messages(&self) -> String {
        fs::read_to_string(&self.messages).expect("messages are text")
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rows `id,k,v,ts` in a text for each file: keys of different weight, times that are a little out
/// of order, with gaps.
pub fn rows(random: &mut SplitMix64, files: usize, rows: usize) -> Vec<String> {
    let mut now_ms = 0;
    let mut id = 0;
    let mut text = || {
        let mut text = String::new();
        for _ in 0..rows {
            id += 1;
            now_ms += (random.next_u64() % 20) as i64;
            if random.next_u64().is_multiple_of(500) {
                now_ms += 4_000;
            }
            let at_ms = now_ms + (random.next_u64() % DISORDER_MS as u64) as i64;
            let key = random.next_u64() % (1 + random.next_u64() % 40);
            let value = random.next_u64() % 1_000;
            let at = thalweg_core::text::format_timestamp_millis(at_ms, 3);
            writeln!(text, "{id},k{key},{value},{at}").expect("a text grows");
        }
        text
    };
    (0..files).map(|_| text()).collect()
}

/// The files of a folder, by name; none if there is no folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    entries(folder, Path::is_file)
}

/// The folders of a folder, by name.
pub fn folders(folder: &Path) -> Vec<PathBuf> {
    entries(folder, Path::is_dir)
}

/// Copies a folder with everything in it, hidden files included.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    let copied = |own: &Path| to.join(own.file_name().expect("a name"));
    for file in files(from) {
        fs::copy(&file, copied(&file)).expect("a copy");
    }
    folders(from).iter().for_each(|own| copy_folder(own, &copied(own)));
}

/// The mark of the first output below a folder, which says whose it is.
pub fn lineage(folder: &Path) -> Option<PathBuf> {
    let is_mark = |file: &PathBuf| file.to_string_lossy().ends_with(".lineage");
    let below = || folders(folder).iter().find_map(|folder| lineage(folder));
    files(folder).into_iter().find(is_mark).or_else(below)
}

/// Every file below a folder with its contents, but for the lock and messages.
pub fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for file in files(folder) {
        let is_of_test =
            ["lock", "messages.txt", "job.sql"].iter().any(|name| file.ends_with(name))
                || file.to_string_lossy().ends_with("thalweg-lock");
        if !is_of_test {
            found.push((file.display().to_string(), fs::read(&file).expect("a file")));
        }
    }
    folders(folder).iter().for_each(|folder| found.extend(contents(folder)));
    found
}

fn entries(folder: &Path, is_wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| is_wanted(path));
    paths.sort();
    paths
}
