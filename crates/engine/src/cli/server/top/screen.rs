//! The terminal: draws what there is, and takes keys.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};
use ratatui::{DefaultTerminal, Frame};
use thalweg_core::text::without_controls;
use thalweg_core::{Error, Result};
use thalweg_server::JobState;

use super::asking::Asking;
use super::table::{IS_TEXT, JOB_COLUMNS, head, job_cells, stage_cells};
use super::view::{Done, Key, Mode, View};

/// How long keys are waited for before news are looked for.
const KEYS_EVERY: Duration = Duration::from_millis(50);
/// The keys, in the lowest line.
const KEYS: &str =
    "[/] filter  [s] sort  [enter] stages  [w] why  [p] snapshot  [S] stop  [?] help  [q] leave";

/// Shows the view until a person leaves.
///
/// # Errors
/// Those of the terminal.
pub fn show(mut view: View, asking: &Asking) -> Result<()> {
    let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
    let shown = show_on(&mut terminal, &mut view, asking);
    let _ = ratatui::try_restore();
    shown.map_err(|error| broken(&error))
}

fn broken(error: &std::io::Error) -> Error {
    Error::io(format!("can't use the terminal: {error}")).hint("`thalweg top --once` needs none")
}

fn show_on(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    asking: &Asking,
) -> std::io::Result<()> {
    let mut state = TableState::default();
    let mut is_stale = true;
    loop {
        while let Ok(news) = asking.news.try_recv() {
            view.take(news);
            is_stale = true;
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| draw(frame, view, &mut state))?;
        }
        if !event::poll(KEYS_EVERY)? {
            continue;
        }
        is_stale = true;
        let Event::Key(pressed) = event::read()? else { continue };
        let done = match key_of(pressed) {
            Some(key) => view.key(key),
            None if is_interrupt(pressed) => Done::Quit,
            None => Done::Shown,
        };
        match done {
            Done::Shown => {}
            Done::Quit => return Ok(()),
            // The thread ends with the process only.
            Done::Asked(ask) => drop(asking.wishes.send(ask)),
        }
    }
}

fn is_interrupt(pressed: KeyEvent) -> bool {
    pressed.modifiers.contains(KeyModifiers::CONTROL) && pressed.code == KeyCode::Char('c')
}

fn key_of(pressed: KeyEvent) -> Option<Key> {
    const PAGE_LINES: isize = 10;
    if pressed.kind == KeyEventKind::Release || pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    Some(match pressed.code {
        KeyCode::Char(character) => Key::Character(character),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Move(-1),
        KeyCode::Down => Key::Move(1),
        KeyCode::PageUp => Key::Move(-PAGE_LINES),
        KeyCode::PageDown => Key::Move(PAGE_LINES),
        KeyCode::Home => Key::Move(isize::MIN),
        KeyCode::End => Key::Move(isize::MAX),
        _ => return None,
    })
}

fn draw(frame: &mut Frame, view: &View, state: &mut TableState) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [above, _, middle, below] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(head(view.server(), view.all())), above);
    match &view.mode {
        Mode::Page(text) => {
            let text = without_controls(text).into_owned();
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), middle);
        }
        _ => draw_jobs(frame, view, state, middle),
    }
    let (text, style) = lowest(view);
    frame.render_widget(Paragraph::new(text).style(style), below);
}

/// The line below the table.
fn lowest(view: &View) -> (String, Style) {
    let loud = Style::new().add_modifier(Modifier::REVERSED);
    match &view.mode {
        Mode::Filter => (format!("/{}▏ enter keeps it, escape clears it", view.filter), loud),
        Mode::Stop(job) => {
            (format!("stop {job} with a snapshot? [y] yes, any other key: no"), loud)
        }
        Mode::Page(_) => ("any key goes back".to_owned(), Style::new()),
        Mode::Jobs => match (&view.lost, view.message.as_str()) {
            (Some(lost), _) => (format!("no answer: {}", without_controls(lost)), loud),
            (None, "") => {
                let filter = match view.filter.as_str() {
                    "" => String::new(),
                    filter => format!("  only '{filter}'"),
                };
                (format!("{KEYS}   by {}{filter}", view.sort.word()), Style::new())
            }
            (None, message) => (without_controls(message).into_owned(), loud),
        },
    }
}

fn draw_jobs(frame: &mut Frame, view: &View, state: &mut TableState, area: ratatui::layout::Rect) {
    let mut rows: Vec<([String; 12], Style)> = Vec::new();
    let selected = view.selected();
    for (place, job) in view.jobs().enumerate() {
        if Some(place) == selected {
            state.select(Some(rows.len()));
        }
        rows.push((job_cells(job, view.server().at_ms), style_of(job.state)));
        let stages = view.stages(&job.name);
        let cells = stages.iter().enumerate();
        rows.extend(cells.map(|(place, stage)| {
            (
                stage_cells(stage, place + 1 == stages.len()),
                Style::new().add_modifier(Modifier::DIM),
            )
        }));
    }
    let widths: Vec<usize> = (0..JOB_COLUMNS.len())
        .map(|column| {
            let cells = rows.iter().map(|(cells, _)| cells[column].chars().count());
            cells.chain([JOB_COLUMNS[column].len()]).max().unwrap_or_default()
        })
        .collect();
    let padded = |cells: &[String]| -> Row<'static> {
        Row::new(
            cells
                .iter()
                .zip(&widths)
                .zip(IS_TEXT)
                .map(
                    |((cell, &width), is_text)| {
                        if is_text { cell.clone() } else { format!("{cell:>width$}") }
                    },
                )
                .collect::<Vec<_>>(),
        )
    };
    let limits = widths.iter().enumerate().map(|(column, &width)| match column + 1 {
        last if last == JOB_COLUMNS.len() => Constraint::Fill(1),
        _ => Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)),
    });
    let names = JOB_COLUMNS.map(str::to_owned);
    let table = Table::new(rows.iter().map(|(cells, style)| padded(cells).style(*style)), limits)
        .header(padded(&names).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, state);
}

/// A color for what a word says already.
fn style_of(state: JobState) -> Style {
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return Style::new();
    }
    match state {
        JobState::Failed => Style::new().fg(Color::Red),
        JobState::Undecided | JobState::Restarting => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::server_arguments::TopSort;
    use super::super::view::{JobList, News};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(120, 8)).expect("a terminal");
        let mut state = TableState::default();
        terminal.draw(|frame| draw(frame, view, &mut state)).expect("drawn");
        let lines = terminal.backend().to_string();
        lines.lines().map(|line| format!("{}\n", line.trim_matches('"').trim_end())).collect()
    }

    #[test]
    fn the_screen_has_the_server_the_jobs_and_the_keys() {
        let mut view = View::new(TopSort::Trouble, String::new());
        let list: JobList = serde_json::from_str(
            r#"{"items":[{"name":"orders","state":"running","since_ms":0,"desired":"running","revision":1,"generation":1,
                "tags":[],"limits":{},"restarts":0,"rows_in":9,"rows_out":9,"late_rows":0,"bad_rows":0,"state_bytes":2048,
                "snapshot":12,"snapshot_taken_ms":57000,"conditions":[],
                "now":{"in_per_s":84100.0,"out_per_s":0.0,"late_per_min":0.0,"bad_per_min":3.0,"busy":0.25,"lag_s":1.2,
                       "p99_s":0.0041,"memory_bytes":0}}],
               "server":{"version":"9.9","began_ms":0,"at_ms":60000,"workers":16,"busy":0.25,"memory_bytes":1024,
                         "memory_limit_bytes":1073741824}}"#,
        )
        .expect("a list");
        view.take(News::Jobs(list));
        let screen = drawn(&view);
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(
            lines[0],
            "thalweg 9.9  up 1 min 0 s   16 workers ███░░░░░░░ 25 %   memory 1 KiB of 1.0 GiB   1 job: 1 running"
        );
        assert_eq!(
            lines[2],
            "JOB     STATE        IN/s  OUT/s    LAG   P99  LATE/m  BAD/m   KEPT  BUSY  SNAPSHOT  CONDITION"
        );
        assert_eq!(
            lines[3],
            "orders  ▲ running  84.1 k      0  1.2 s  5 ms       0      3  2 KiB  25 %  12, 3 s   –"
        );
        assert!(lines[7].starts_with("[/] filter"), "{screen}");
        view.key(Key::Character('?'));
        assert!(drawn(&view).contains("choose a job"));
        view.key(Key::Escape);
        view.take(News::Lost("there is no server at x\u{1b}[2J".to_owned()));
        let screen = drawn(&view);
        assert!(screen.contains("no answer: there is no server at x"), "{screen}");
        assert!(!screen.contains('\u{1b}'));
    }
}
