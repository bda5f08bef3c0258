//! What is shown, and what keys do.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::json;
use thalweg_server::{JobState, JobSummary, ServerNow, StageView};

use super::super::super::server_arguments::TopSort;
use super::table::says;

/// The jobs as the server lists them.
#[derive(Debug, Default, Deserialize)]
pub struct JobList {
    /// By name.
    pub items: Vec<JobSummary>,
    /// The server.
    pub server: ServerNow,
}

/// What the server is to be asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The stages of this job with every list of jobs, or of none.
    Open(Option<String>),
    /// Why its results are where they are.
    Why(String),
    /// A snapshot.
    Snapshot(String),
    /// To stop a job.
    Stop(String),
}

/// What came from the server.
#[derive(Debug)]
pub enum News {
    /// The jobs.
    Jobs(JobList),
    /// The stages of a job.
    Stages(String, Vec<StageView>),
    /// A text for a page of its own.
    Text(String),
    /// A sentence for the lowest line.
    Message(String),
    /// There is no answer, and why.
    Lost(String),
}

/// A key, without the terminal that it came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Key {
    /// A character.
    Character(char),
    /// Return.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// An arrow up or down, or as many lines.
    Move(isize),
}

/// What a key has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// Nothing for others.
    Shown,
    /// A wish.
    Asked(Ask),
    /// The end.
    Quit,
}

/// What keys mean at the moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Mode {
    /// They choose among jobs.
    #[default]
    Jobs,
    /// They write what jobs are filtered by.
    Filter,
    /// They say whether this job is to be stopped.
    Stop(String),
    /// They leave this page.
    Page(String),
}

/// What is known of a server, and what a person looks at.
#[derive(Default)]
pub struct View {
    list: JobList,
    /// What keys mean.
    pub mode: Mode,
    /// What jobs are filtered by.
    pub filter: String,
    /// What they are sorted by.
    pub sort: TopSort,
    selected: Option<String>,
    opened: Option<(String, Vec<StageView>)>,
    /// The lowest line.
    pub message: String,
    /// Why the server does not answer.
    pub lost: Option<String>,
}

/// What the keys do.
pub const HELP: &str = "\
keys
  j k, arrows     choose a job
  enter           its stages
  /               show only jobs whose name, state, tag or condition has this text
  s               sort by the next column
  w               why are its results where they are?
  p               take a snapshot
  S               stop it, with a snapshot
  q, Ctrl-C       leave

IN/s, OUT/s       rows read and written a second
LAG               how far the watermark of the output is behind the clock
P99               99 of 100 results of the last minute were written within this time
LATE/m, BAD/m     rows a minute that were late, or could not be read
KEPT              bytes of state
BUSY              the share of all workers that works for the job
SNAPSHOT          the number of the newest, and its age
";

impl View {
    /// Nothing is known yet.
    pub fn new(sort: TopSort, filter: String) -> View {
        View { filter, sort, ..View::default() }
    }

    /// The server.
    pub fn server(&self) -> &ServerNow {
        &self.list.server
    }

    /// All jobs.
    pub fn all(&self) -> &[JobSummary] {
        &self.list.items
    }

    /// The jobs that are shown, in their order.
    pub fn jobs(&self) -> impl Iterator<Item = &JobSummary> {
        let wanted = self.filter.to_lowercase();
        self.list.items.iter().filter(move |job| has(job, &wanted))
    }

    /// The jobs that are shown, with the server, as one object.
    pub fn json(&self) -> String {
        let jobs: Vec<&JobSummary> = self.jobs().collect();
        json!({ "server": self.list.server, "items": jobs }).to_string()
    }

    /// The stages below a job.
    pub fn stages(&self, job: &str) -> &[StageView] {
        let own = self.opened.as_ref().filter(|(opened, _)| opened == job);
        own.map_or(&[], |(_, stages)| stages)
    }

    /// The place of the chosen job among those that are shown.
    pub fn selected(&self) -> Option<usize> {
        let place =
            self.selected.as_ref().and_then(|name| self.jobs().position(|job| job.name == *name));
        place.or_else(|| self.jobs().next().map(|_| 0))
    }

    fn selected_name(&self) -> Option<String> {
        self.jobs().nth(self.selected()?).map(|job| job.name.clone())
    }

    /// Takes jobs.
    pub fn take_jobs(&mut self, list: JobList) {
        self.list = list;
        self.order();
    }

    fn order(&mut self) {
        let sort = self.sort;
        self.list.items.sort_by(|a, b| compared(sort, a, b).then_with(|| a.name.cmp(&b.name)));
    }

    /// Takes what came.
    pub fn take(&mut self, news: News) {
        match news {
            News::Jobs(list) => {
                self.lost = None;
                self.take_jobs(list);
            }
            News::Stages(job, stages) => {
                if let Some(opened) = self.opened.as_mut().filter(|(opened, _)| *opened == job) {
                    opened.1 = stages;
                }
            }
            News::Text(text) => self.mode = Mode::Page(text),
            News::Message(text) => self.message = text,
            News::Lost(why) => self.lost = Some(why),
        }
    }

    /// Does what a key says.
    pub fn key(&mut self, key: Key) -> Done {
        self.message.clear();
        match (std::mem::take(&mut self.mode), key) {
            (Mode::Page(_), _) => {}
            (Mode::Filter, Key::Enter) => {}
            (Mode::Filter, Key::Escape) => self.filter.clear(),
            (Mode::Filter, key) => {
                match key {
                    Key::Character(character) => self.filter.push(character),
                    Key::Backspace => drop(self.filter.pop()),
                    _ => {}
                }
                self.mode = Mode::Filter;
            }
            (Mode::Stop(job), Key::Character('y')) => return Done::Asked(Ask::Stop(job)),
            (Mode::Stop(job), _) => self.message = format!("{job} continues"),
            (Mode::Jobs, key) => return self.key_on_jobs(key),
        }
        Done::Shown
    }

    fn key_on_jobs(&mut self, key: Key) -> Done {
        let chosen = self.selected_name();
        match (key, chosen) {
            (Key::Character('q'), _) => return Done::Quit,
            (Key::Character('/'), _) => self.mode = Mode::Filter,
            (Key::Character('?'), _) => self.mode = Mode::Page(HELP.to_owned()),
            (Key::Character('s'), _) => {
                self.sort = self.sort.next();
                self.order();
            }
            (Key::Escape, _) => self.filter.clear(),
            (Key::Character('j'), _) => self.walk(1),
            (Key::Character('k'), _) => self.walk(-1),
            (Key::Move(lines), _) => self.walk(lines),
            (Key::Enter, Some(job)) => return self.open(job),
            (Key::Character('w'), Some(job)) => return Done::Asked(Ask::Why(job)),
            (Key::Character('p'), Some(job)) => return Done::Asked(Ask::Snapshot(job)),
            (Key::Character('S'), Some(job)) => self.mode = Mode::Stop(job),
            _ => {}
        }
        Done::Shown
    }

    fn walk(&mut self, lines: isize) {
        let count = self.jobs().count();
        let Some(place) = self.selected() else { return };
        let place = place.saturating_add_signed(lines).min(count.saturating_sub(1));
        let chosen = self.jobs().nth(place).map(|job| job.name.clone());
        self.selected = chosen;
    }

    /// Shows the stages of a job, or no longer.
    fn open(&mut self, job: String) -> Done {
        let was_open = self.opened.take().is_some_and(|(opened, _)| opened == job);
        let opened = (!was_open).then_some(job);
        self.selected = opened.clone().or_else(|| self.selected.take());
        self.opened = opened.clone().map(|job| (job, Vec::new()));
        Done::Asked(Ask::Open(opened))
    }
}

/// True if a job has this text somewhere.
fn has(job: &JobSummary, wanted: &str) -> bool {
    let holds = |text: &str| text.to_lowercase().contains(wanted);
    wanted.is_empty()
        || holds(&job.name)
        || holds(job.state.word())
        || job.tags.iter().any(|tag| holds(tag))
        || job.conditions.iter().any(|condition| holds(&condition.kind))
        || says(job).is_some_and(|text| holds(&text))
}

/// The order of two jobs: text ascends, numbers descend, and what is not known comes last.
fn compared(sort: TopSort, a: &JobSummary, b: &JobSummary) -> Ordering {
    let number = |of: fn(&JobSummary) -> Option<f64>| {
        let (a, b) = (of(a).unwrap_or(f64::NEG_INFINITY), of(b).unwrap_or(f64::NEG_INFINITY));
        b.total_cmp(&a)
    };
    match sort {
        TopSort::Trouble => trouble(a).cmp(&trouble(b)),
        TopSort::Name => Ordering::Equal,
        TopSort::State => a.state.word().cmp(b.state.word()),
        TopSort::In => number(|job| Some(job.now.as_ref()?.in_per_s)),
        TopSort::Out => number(|job| Some(job.now.as_ref()?.out_per_s)),
        TopSort::Lag => number(|job| job.now.as_ref()?.lag_s),
        TopSort::P99 => number(|job| job.now.as_ref()?.p99_s),
        TopSort::Late => number(|job| Some(job.now.as_ref()?.late_per_min)),
        TopSort::Bad => number(|job| Some(job.now.as_ref()?.bad_per_min)),
        TopSort::Kept => number(|job| Some(job.state_bytes as f64)),
        TopSort::Busy => number(|job| Some(job.now.as_ref()?.busy)),
        // The oldest first.
        TopSort::Snapshot => number(|job| Some(-(job.snapshot_taken_ms? as f64))),
    }
}

/// Jobs that need a person come first.
fn trouble(job: &JobSummary) -> u8 {
    match job.state {
        JobState::Failed => 0,
        JobState::Undecided => 1,
        JobState::Restarting => 2,
        JobState::Running if !job.conditions.is_empty() => 3,
        JobState::Planning | JobState::Starting | JobState::Stopping => 4,
        JobState::Running => 5,
        JobState::Paused => 6,
        JobState::Stopped | JobState::Finished | JobState::Draft => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, state: &str, in_per_s: f64, condition: Option<&str>) -> JobSummary {
        let conditions: Vec<_> = condition
            .into_iter()
            .map(|text| json!({ "kind": "held", "since_ms": 0, "text": text }))
            .collect();
        let job = json!({
            "name": name, "state": state, "since_ms": 0, "desired": "running", "revision": 1,
            "generation": 1, "tags": ["nightly"], "limits": {}, "restarts": 0, "rows_in": 0,
            "rows_out": 0, "late_rows": 0, "bad_rows": 0, "state_bytes": 0,
            "conditions": conditions,
            "now": { "in_per_s": in_per_s, "out_per_s": 0.0, "late_per_min": 0.0,
                     "bad_per_min": 0.0, "busy": 0.0, "memory_bytes": 0 },
        });
        serde_json::from_value(job).expect("a job")
    }

    fn view() -> View {
        let mut view = View::new(TopSort::Trouble, String::new());
        let items = vec![
            job("a", "running", 5.0, None),
            job("b", "running", 9.0, Some("held by meters[7]")),
            job("c", "failed", 0.0, None),
            job("d", "stopped", 0.0, None),
        ];
        view.take(News::Jobs(JobList { items, server: ServerNow::default() }));
        view
    }

    fn names(view: &View) -> String {
        view.jobs().map(|job| job.name.as_str()).collect()
    }

    #[test]
    fn jobs_that_need_a_person_come_first_and_keys_sort_and_filter() {
        let mut view = view();
        assert_eq!(names(&view), "cbad");
        while view.sort != TopSort::In {
            assert_eq!(view.key(Key::Character('s')), Done::Shown);
        }
        assert_eq!(names(&view), "bacd");
        view.key(Key::Character('/'));
        "meters".chars().for_each(|character| drop(view.key(Key::Character(character))));
        assert_eq!((names(&view), view.mode.clone()), ("b".to_owned(), Mode::Filter));
        view.key(Key::Backspace);
        view.key(Key::Enter);
        assert_eq!((view.filter.as_str(), view.mode.clone()), ("meter", Mode::Jobs));
        view.key(Key::Escape);
        assert_eq!(names(&view), "bacd");
        for text in ["NIGHTLY", "held", ""] {
            view.filter = text.to_owned();
            assert!(names(&view).contains('b'), "{text}");
        }
    }

    #[test]
    fn the_chosen_job_stays_chosen_while_others_move() {
        let mut view = view();
        view.key(Key::Move(1));
        assert_eq!(view.selected_name().as_deref(), Some("b"));
        view.sort = TopSort::Name;
        view.order();
        assert_eq!((view.selected(), view.selected_name().as_deref()), (Some(1), Some("b")));
        view.key(Key::Move(100));
        assert_eq!(view.selected_name().as_deref(), Some("d"));
        view.filter = "nothing has this".to_owned();
        assert_eq!((view.selected(), view.key(Key::Character('w'))), (None, Done::Shown));
    }

    #[test]
    fn a_job_is_stopped_only_if_that_is_said_twice() {
        let mut view = view();
        assert_eq!(view.key(Key::Character('S')), Done::Shown);
        assert_eq!(view.key(Key::Character('n')), Done::Shown);
        assert_eq!((view.mode.clone(), view.message.as_str()), (Mode::Jobs, "c continues"));
        view.key(Key::Character('S'));
        assert_eq!(view.key(Key::Character('y')), Done::Asked(Ask::Stop("c".to_owned())));
    }

    #[test]
    fn stages_are_shown_below_the_job_that_is_open() {
        let mut view = view();
        assert_eq!(view.key(Key::Enter), Done::Asked(Ask::Open(Some("c".to_owned()))));
        let stage = json!({
            "id": "1", "name": "window o", "role": "operator", "rows_in": 1, "rows_out": 1,
            "bytes_out": 1, "busy_ns": 1, "accepted_rows": 1, "late_rows": 0, "bad_rows": 0,
            "state_bytes": 0, "queued_bundles": 0, "is_idle": false,
        });
        let stages: Vec<StageView> = vec![serde_json::from_value(stage).expect("a stage")];
        view.take(News::Stages("a".to_owned(), stages.clone()));
        assert_eq!(view.stages("c").len(), 0, "those of another job are not taken");
        view.take(News::Stages("c".to_owned(), stages));
        assert_eq!((view.stages("c").len(), view.stages("a").len()), (1, 0));
        assert_eq!(view.key(Key::Enter), Done::Asked(Ask::Open(None)));
        assert_eq!(view.stages("c").len(), 0);
    }

    #[test]
    fn a_server_that_is_gone_is_said_until_it_is_back() {
        let mut view = view();
        view.take(News::Lost("there is no server".to_owned()));
        assert!(view.lost.is_some() && names(&view) == "cbad", "what was known stays");
        view.take(News::Jobs(JobList::default()));
        assert_eq!((view.lost.clone(), names(&view)), (None, String::new()));
    }
}
