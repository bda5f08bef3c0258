//! Workers, and the jobs that share them.
//!
//! There are as many workers as cores, however many jobs there are (Hazelcast Jet §3: cooperative
//! work on one pool). A job that is started without a pool gets one of its own, which ends with it.
//!
//! # How workers spread over jobs
//! A worker stays at a job while that has work, for a slice of time at most; then it goes to the
//! next one in turn that has any. So no job waits for longer than a slice of each other job, and a
//! job with much work does not pay for a look at all others with each task. Tasks take a
//! millisecond at most and are never cut short.
//!
//! # Invariants
//! - A worker is at one job at most. It has *entered* that one (it is counted in `Job::present`)
//!   before it looks for a task there and leaves before it looks at another one or parks, also when
//!   it panics.
//! - A worker that has entered looks first whether the job is over. So once a job is over and
//!   nobody is present, nobody touches it any more (`Pool::leave`): whoever enters later sees that
//!   it is over.
//! - All jobs of a pool post their work to one [`Sleep`], and a worker looks at every job between
//!   announcing that it sleeps and parking: no wake-up is lost, as argued there. A job that joins
//!   is such a post.
//! - A worker passes over jobs without news (`news`), and now and then looks at all.
//!
//! What it does not do: it gives no job more than another, and it does not know memory: each job
//! has its own limit.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result};
use thalweg_ordering::Sleep;
use thalweg_ordering::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};

use crate::dispatcher::{Task, next_task};
use crate::idleness::{look_around, look_at_the_clock};
use crate::job::Job;
use crate::task::execute;
use crate::task_lengths::Absence;
use crate::topology::{Topology, WorkerPlace, affinity};

/// How long an idle worker sleeps at most before it looks around by itself.
const PARK_MS: u64 = 50;
/// How often an idle worker looks before it parks. At a million events a second, of which each few
/// hundred come together, eight instead of 64 save a quarter to a third of the processor time, and
/// no result comes later.
const SPINS: usize = 8;
/// The same where it looks at many jobs each time.
const SPINS_MIN: usize = 4;
/// After how many tasks a worker looks who waits for the clock.
const TASKS_PER_TICK: usize = 16;
/// How long a worker stays at a job while others may have work.
const SLICE_NS: u64 = 200_000;
/// Workers of a pool with many jobs look around so often at most.
const LOOK_AROUND_NS: u64 = 10_000_000;
/// How often whoever ends a job looks whether workers have left it. They do after a task.
const LEAVING: Duration = Duration::from_micros(50);

/// Workers that jobs share. A copy is another handle of the same ones; they end when the last
/// handle is dropped.
///
/// ```
/// use std::time::Duration;
/// use thalweg_runtime::{Pool, RunOptions};
///
/// let pool = Pool::new(2, true, Duration::ZERO)?;
/// // Every job that is started with these options runs on the two workers.
/// let options = RunOptions { pool: Some(pool.clone()), ..RunOptions::default() };
/// assert_eq!(options.pool.map(|pool| pool.workers()), Some(2));
/// # Ok::<(), thalweg_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Threads>);

/// The threads, which end with it.
struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

/// What workers know of each other and of their jobs.
struct Shared {
    sleep: Arc<Sleep>,
    /// How long an idle worker looks for news before the system may put it to sleep.
    spin_ns: u64,
    clock: SystemClock,
    jobs: Mutex<Arc<[Arc<Job>]>>,
    /// Counts changes of `jobs`. Raised under its lock, read without it.
    version: AtomicU64,
    is_closing: AtomicBool,
}

impl Pool {
    /// Starts workers, at least one. With `pins` each stays on its core where the platform allows
    /// it and there are as many workers as cores, or on its NUMA node if there are fewer workers.
    /// An idle worker spins for so long before it parks: news find it at once, and meanwhile it
    /// takes a core.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn new(workers: usize, pins: bool, spin: Duration) -> Result<Pool> {
        let shared = Arc::new(Shared {
            sleep: Arc::new(Sleep::new()),
            spin_ns: u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX),
            clock: SystemClock::new(),
            jobs: Mutex::new(Arc::new([])),
            version: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
        });
        let workers = workers.max(1);
        let topology = Topology::detect();
        let mut threads = Threads { shared, handles: Vec::new() };
        for worker in 0..workers {
            let (_, numa_node) = topology.place(worker);
            let shared = Arc::clone(&threads.shared);
            let cores = topology.cores_for(worker, workers).filter(|_| pins);
            let body = move || {
                if let Some(cores) = cores {
                    affinity::keep_to(&cores);
                }
                shared.live(WorkerPlace { worker, numa_node });
            };
            let thread = std::thread::Builder::new().name(format!("worker-{worker}")).spawn(body);
            let failed = |error| Error::io(format!("can't start a worker thread: {error}"));
            threads.handles.push(thread.map_err(failed)?);
        }
        Ok(Pool(Arc::new(threads)))
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.0.handles.len()
    }

    /// How many jobs they have.
    pub(crate) fn jobs(&self) -> usize {
        self.0.shared.jobs().1.len()
    }

    /// Where idle workers wait, and whoever has work for them finds them.
    pub(crate) fn sleep(&self) -> Arc<Sleep> {
        Arc::clone(&self.0.shared.sleep)
    }

    /// From here on workers look at this job.
    pub(crate) fn join(&self, job: &Arc<Job>) {
        self.0.shared.change(|jobs| jobs.push(Arc::clone(job)));
    }

    /// Workers look at this job no more, which must be over. Returns when none of them is at it.
    /// Nothing happens if they have left it before.
    pub(crate) fn leave(&self, job: &Arc<Job>) {
        debug_assert!(job.lifecycle.is_over());
        let is_same = |other: &Arc<Job>| Arc::ptr_eq(other, job);
        if !self.0.shared.jobs().1.iter().any(is_same) {
            return;
        }
        self.0.shared.change(|jobs| jobs.retain(|other| !is_same(other)));
        // SeqCst on both sides: a worker that is not seen here sees that the job is over.
        while job.present.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(LEAVING);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workers, jobs) = (self.workers(), self.jobs());
        f.debug_struct("Pool").field("workers", &workers).field("jobs", &jobs).finish()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.sleep.notify_all();
        for handle in self.handles.drain(..) {
            // A worker that panicked has said so to its jobs.
            drop(handle.join());
        }
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Job>>)) {
        let mut jobs = self.jobs.lock().expect("no panic under this lock");
        let mut changed = jobs.to_vec();
        change(&mut changed);
        *jobs = changed.into();
        self.version.fetch_add(1, Ordering::SeqCst);
        drop(jobs);
        self.sleep.notify_all();
    }

    fn jobs(&self) -> (u64, Arc<[Arc<Job>]>) {
        let jobs = self.jobs.lock().expect("no panic under this lock");
        (self.version.load(Ordering::SeqCst), Arc::clone(&jobs))
    }

    /// A worker's life.
    fn live(&self, place: WorkerPlace) {
        let lived = catch_unwind(AssertUnwindSafe(|| Worker::new(self, place).live()));
        if lived.is_err() {
            for job in self.jobs().1.iter() {
                job.lifecycle.fail(Error::internal("a worker panicked outside its tasks"));
            }
        }
    }
}

/// When sources that let rows wait for others want to be asked again, as far as one worker has
/// asked them. Nobody posts it, so this worker does not sleep beyond it.
#[derive(Default)]
struct Reminders(Vec<(u64, Arc<Job>)>);

impl Reminders {
    /// Takes a note of it if this task has left rows that wait.
    fn note(&mut self, job: &Arc<Job>, stage: usize) {
        let Some(source) = job.stages[stage].source() else { return };
        if !source.gathers_while_busy.load(Ordering::SeqCst) {
            return;
        }
        let until_ns = source.gathers_until_ns.load(Ordering::Relaxed);
        match self.0.iter_mut().find(|(_, other)| Arc::ptr_eq(other, job)) {
            Some((at_ns, _)) => *at_ns = until_ns.min(*at_ns),
            None => self.0.push((until_ns, Arc::clone(job))),
        }
    }

    /// Forgets jobs that are not among these.
    fn keep(&mut self, jobs: &[Arc<Job>]) {
        self.0.retain(|(_, job)| jobs.iter().any(|other| Arc::ptr_eq(other, job)));
    }

    /// Marks the jobs that are due.
    fn call(&mut self) {
        self.0.retain(|(at_ns, job)| {
            let is_due = job.now_ns() >= *at_ns;
            if is_due {
                job.news.mark();
            }
            !is_due
        });
    }

    /// In how many milliseconds, begun ones included, the first is due.
    fn due_ms(&self) -> Option<u64> {
        let due = self.0.iter().map(|(at_ns, job)| at_ns.saturating_sub(job.now_ns()));
        due.min().map(|wait_ns| wait_ns.div_ceil(1_000_000))
    }
}

/// One of the threads.
struct Worker<'a> {
    pool: &'a Shared,
    place: WorkerPlace,
    jobs: Arc<[Arc<Job>]>,
    version: u64,
    /// The job that it has entered.
    at: Option<usize>,
    /// The job that it did something for last.
    turn: usize,
    /// When it came there.
    since_ns: u64,
    looked_around_ns: u64,
    tasks: usize,
    absence: Absence,
    reminders: Reminders,
}

impl<'a> Worker<'a> {
    fn new(pool: &'a Shared, place: WorkerPlace) -> Self {
        let (version, jobs) = pool.jobs();
        let since_ns = pool.clock.now_ns();
        Worker {
            pool,
            place,
            jobs,
            version,
            at: None,
            turn: 0,
            since_ns,
            looked_around_ns: since_ns,
            tasks: 0,
            absence: Absence::default(),
            reminders: Reminders::default(),
        }
    }

    fn live(&mut self) {
        while !self.is_closing() {
            if self.is_outdated() {
                self.refresh();
            }
            self.reminders.call();
            let spins = self.spins();
            let look = |_| {
                let task = self.next_task();
                if task.is_none() {
                    std::hint::spin_loop();
                }
                task
            };
            match (0..spins).find_map(look) {
                Some(task) => self.execute(task),
                None => self.rest(),
            }
        }
    }

    fn spins(&self) -> usize {
        (SPINS / self.jobs.len().max(1)).max(SPINS_MIN)
    }

    fn is_closing(&self) -> bool {
        self.pool.is_closing.load(Ordering::SeqCst)
    }

    fn is_outdated(&self) -> bool {
        self.pool.version.load(Ordering::SeqCst) != self.version
    }

    fn refresh(&mut self) {
        self.leave();
        (self.version, self.jobs) = self.pool.jobs();
        self.reminders.keep(&self.jobs);
        self.turn = 0;
    }

    /// Parks, unless there is something to do after all.
    fn rest(&mut self) {
        let ticket = self.pool.sleep.announce();
        let task = self.next_task();
        if task.is_some() || self.is_outdated() || self.is_closing() {
            self.pool.sleep.retract(ticket);
            task.into_iter().for_each(|task| self.execute(task));
            return;
        }
        self.leave();
        let Shared { clock, spin_ns, sleep, .. } = self.pool;
        let begin_ns = clock.now_ns();
        let park_ms = self.reminders.due_ms().map_or(PARK_MS, |due_ms| due_ms.min(PARK_MS));
        sleep.park(ticket, || clock.now_ns() - begin_ns < *spin_ns, park_ms);
        self.look_around();
    }

    /// A task of the job that it is at, while the slice lasts, else of the next one that has any.
    fn next_task(&mut self) -> Option<Task> {
        if let Some(at) = self.at
            && (self.jobs.len() == 1 || self.pool.clock.now_ns() - self.since_ns < SLICE_NS)
            && !self.jobs[at].lifecycle.is_over()
            && let Some(task) = next_task(&self.jobs[at], self.place)
        {
            return Some(task);
        }
        let jobs = self.jobs.len();
        for step in 1..=jobs {
            let at = (self.turn + step) % jobs;
            let has_news = jobs == 1 || self.jobs[at].news.take();
            if !has_news || !self.enter(at) {
                continue;
            }
            if let Some(task) = next_task(&self.jobs[at], self.place) {
                if jobs > 1 {
                    // There may be more of it, for others.
                    self.jobs[at].news.notify();
                }
                (self.turn, self.since_ns) = (at, self.pool.clock.now_ns());
                return Some(task);
            }
        }
        None
    }

    /// Goes to this job. False if it is over.
    fn enter(&mut self, at: usize) -> bool {
        if self.at != Some(at) {
            self.leave();
            self.jobs[at].present.fetch_add(1, Ordering::SeqCst);
            self.absence.forget();
            self.at = Some(at);
        }
        let is_over = self.jobs[at].lifecycle.is_over();
        if is_over {
            self.leave();
        }
        !is_over
    }

    fn leave(&mut self) {
        if let Some(at) = self.at.take() {
            self.jobs[at].present.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Does a task of the job that it is at.
    fn execute(&mut self, task: Task) {
        let at = self.at.expect("a task is of the job at which it was found");
        let job = &self.jobs[at];
        let stage = task.stage();
        execute(job, task, self.place, Some(&mut self.absence));
        self.reminders.note(job, stage);
        if self.jobs.len() > 1 {
            job.news.mark();
        }
        self.tasks += 1;
        // Where all are busy one of them has to look as well.
        if self.tasks.is_multiple_of(TASKS_PER_TICK) {
            look_at_the_clock(job);
        }
    }

    fn look_around(&mut self) {
        let now_ns = self.pool.clock.now_ns();
        if self.jobs.len() > 1 && now_ns - self.looked_around_ns < LOOK_AROUND_NS {
            return;
        }
        self.looked_around_ns = now_ns;
        for at in 0..self.jobs.len() {
            if !self.enter(at) {
                continue;
            }
            let job = &self.jobs[at];
            job.news.mark();
            if let Err(error) = look_around(job) {
                job.lifecycle.fail(error);
            }
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
