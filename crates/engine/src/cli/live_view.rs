//! A result that changes, redrawn on the terminal while it does.
//!
//! The view is a table of as many rows as the terminal shows, the ones that came in last, and a
//! line that says how many there are. Drawing goes up over what was drawn before and clears from
//! there.
//!
//! **Invariants:** lines never wrap while they are drawn (the terminal cuts them), so that a view
//! of n lines is n lines high; nothing stands between a view and the one that takes its place: the
//! progress is erased while sinks write (see [`super::screen`]), and where other jobs have printed
//! or something was said, the next view begins below that.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use chrono_tz::Tz;
use thalweg_connectors::output::{Format, rows_as_text};
use thalweg_core::shim::{Clock, SystemClock};
use thalweg_core::{Error, Result, TableSchema};

use super::screen::Screen;

/// Time between two drawings: people read no faster, and a busy job should not draw all the time.
const PERIOD: Duration = Duration::from_millis(100);
/// Lines around the rows: four of the table's frame, the count, the cursor's, and those of the
/// progress, at least one.
const OTHER_LINES: usize = 6;
/// Rows where the terminal does not report its height.
const USUAL_LINES: u16 = 24;

const KEEP_LINES: &str = "\x1b[?7l";
const WRAP_LINES: &str = "\x1b[?7h";
const CLEAR_BELOW: &str = "\x1b[J";

/// What stands on the terminal, and when it came there.
pub struct LiveView {
    out: Box<dyn Write + Send>,
    schema: TableSchema,
    null_text: String,
    zone: Tz,
    height: fn() -> u16,
    screen: Arc<Screen>,
    /// What the screen said about others when the view was drawn.
    turns: usize,
    drawn_lines: usize,
    clock: SystemClock,
    drawn_at_ns: Option<u64>,
}

impl LiveView {
    /// A view of rows with these columns; nothing is drawn yet.
    pub fn new(
        out: Box<dyn Write + Send>,
        schema: TableSchema,
        null_text: String,
        zone: Tz,
        screen: Arc<Screen>,
    ) -> LiveView {
        LiveView {
            out,
            schema,
            null_text,
            zone,
            height: terminal_height,
            screen,
            turns: 0,
            drawn_lines: 0,
            clock: SystemClock::new(),
            drawn_at_ns: None,
        }
    }

    /// How long until the view may be drawn again; zero if it may be now.
    pub fn rest(&self) -> Duration {
        let elapsed = |at: u64| Duration::from_nanos(self.clock.now_ns().saturating_sub(at));
        self.drawn_at_ns.map_or(Duration::ZERO, |at| PERIOD.saturating_sub(elapsed(at)))
    }

    /// How many rows there is room for.
    pub fn rows_max(&self) -> usize {
        let others = OTHER_LINES + self.screen.lines().max(1);
        usize::from((self.height)()).saturating_sub(others).max(1)
    }

    /// Draws these rows, the last ones of `rows_all`, in place of what was drawn before.
    ///
    /// # Errors
    /// If the terminal has gone away.
    pub fn draw(&mut self, rows: &RecordBatch, rows_all: usize) -> Result<()> {
        let mut text = self.table(rows)?;
        let hidden = rows_all.saturating_sub(rows.num_rows());
        if hidden > 0 {
            text.push_str(&format!("… and {hidden} rows above\n"));
        }
        let up = self.up();
        self.drawn_lines = text.lines().count();
        self.drawn_at_ns = Some(self.clock.now_ns());
        self.print(&format!("{KEEP_LINES}{up}{CLEAR_BELOW}{text}{WRAP_LINES}"))
    }

    /// Takes the view away, so that the result can be printed in its place.
    ///
    /// # Errors
    /// If the terminal has gone away.
    pub fn clear(&mut self) -> Result<()> {
        let up = self.up();
        self.drawn_lines = 0;
        self.print(&format!("{up}{CLEAR_BELOW}"))
    }

    /// Brings the cursor to the first column of the view's first line.
    fn up(&mut self) -> String {
        let turns = self.screen.turns();
        if std::mem::replace(&mut self.turns, turns) != turns {
            // What others have printed stands below it, and stays.
            self.drawn_lines = 0;
        }
        match self.drawn_lines {
            0 => "\r".to_owned(),
            lines => format!("\r\x1b[{lines}A"),
        }
    }

    fn table(&self, rows: &RecordBatch) -> Result<String> {
        rows_as_text(Format::Table, &self.schema, &self.null_text, self.zone, rows)
    }

    fn print(&mut self, text: &str) -> Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|error| Error::io(format!("cannot write to the terminal: {error}")))
    }
}

fn terminal_height() -> u16 {
    terminal_size::terminal_size().map_or(USUAL_LINES, |(_, terminal_size::Height(lines))| lines)
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use thalweg_core::{Column, DataType};

    use super::*;
    use std::sync::Mutex;

    /// A terminal whose text can be looked at.
    #[derive(Clone, Default)]
    struct SharedText(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedText {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic under this lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn view(text: &SharedText) -> LiveView {
        let schema = TableSchema::new(vec![Column::new("n", DataType::BigInt.nullable())]);
        let out = Box::new(text.clone());
        let view = LiveView::new(out, schema, String::new(), Tz::UTC, Arc::default());
        LiveView { height: || 10, ..view }
    }

    fn rows(view: &LiveView, numbers: &[i64]) -> RecordBatch {
        let column = Arc::new(Int64Array::from(numbers.to_vec()));
        RecordBatch::try_new(view.schema.arrow(), vec![column]).unwrap()
    }

    fn printed(text: &SharedText) -> String {
        String::from_utf8(std::mem::take(&mut *text.0.lock().unwrap())).unwrap()
    }

    #[test]
    fn a_drawing_takes_the_place_of_the_one_before() {
        let text = SharedText::default();
        let mut view = view(&text);
        assert_eq!(view.rest(), Duration::ZERO);
        view.draw(&rows(&view, &[1, 2]), 2).unwrap();
        let first = printed(&text);
        let lines = first.lines().count() - 1;
        assert!(first.contains('2') && !first.contains("above"), "{first:?}");
        assert!(view.rest() > Duration::ZERO, "not again at once");
        view.draw(&rows(&view, &[7, 8, 9]), 12).unwrap();
        let second = printed(&text);
        assert!(second.contains(&format!("\r\x1b[{lines}A{CLEAR_BELOW}")), "{second:?}");
        assert!(second.contains("… and 9 rows above"), "{second:?}");
        view.clear().unwrap();
        assert_eq!(printed(&text), format!("\r\x1b[{}A{CLEAR_BELOW}", lines + 2));
    }

    #[test]
    fn a_view_leaves_alone_what_others_print() {
        let text = SharedText::default();
        let mut view = view(&text);
        view.draw(&rows(&view, &[1, 2]), 2).unwrap();
        printed(&text);
        view.screen.above(7, || ());
        view.draw(&rows(&view, &[3]), 1).unwrap();
        assert!(!printed(&text).contains('A'), "it stays where it is");
        view.draw(&rows(&view, &[4]), 1).unwrap();
        assert!(printed(&text).contains('A'), "it goes up over itself");
    }

    #[test]
    fn there_is_room_for_what_stands_around() {
        let view = view(&SharedText::default());
        assert_eq!(view.rows_max(), 3);
        view.screen.draw("one\ntwo\nthree");
        assert_eq!(view.rows_max(), 1);
    }
}
