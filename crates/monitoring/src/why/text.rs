//! The answer as people read it.

use std::fmt::Write;

use super::answer::Why;
use super::reason::{Evidence, Reason, Verdict};
use crate::numbers::{count, moment, percent, plural, rate, span};
use crate::reading::StageKind;

/// The whole as one sentence.
pub(super) fn sentence(why: &Why) -> String {
    let label = why.holder.label();
    match why.verdict {
        Verdict::Flowing => format!("flowing; {label} is the last of its inputs"),
        Verdict::Ended => "all input has ended".to_owned(),
        Verdict::Behind => format!("behind: {label}: {}", explanation(why)),
        Verdict::StandingStill => format!("held by {label}: {}", explanation(why)),
    }
}

/// What the reason says of the holder.
pub(super) fn explanation(why: &Why) -> String {
    let ago = |at_ms: i64| span(why.at_ms - at_ms);
    match &why.reason {
        Reason::Flowing => "rows come and their times advance".to_owned(),
        Reason::AllEnded => "all input has ended".to_owned(),
        Reason::Failing { message, attempt, next_at_ms } => format!(
            "the job has failed and starts again in {} (try {attempt}): {message}",
            span(next_at_ms - why.at_ms)
        ),
        Reason::Paused { by } => format!("sources are paused: {by}"),
        Reason::Cut { since_ms, missing } => format!(
            "a snapshot has been under way for {}; it has not come by {}",
            ago(*since_ms),
            names(missing)
        ),
        Reason::Reconnecting { message } => format!("it fails and is tried again: {message}"),
        Reason::WaitsForInput { input, how } if how == "alignment" => {
            format!("it is ahead of its alignment group and waits for {input}")
        }
        Reason::WaitsForInput { input, .. } => format!("it is not read before {input} has ended"),
        Reason::WaitsForAnswer { unanswered, oldest_ms } => format!(
            "{} without an answer, the oldest for {}",
            plural(*unanswered as u64, "lookup"),
            span(*oldest_ms)
        ),
        Reason::SlowStage { busy, queued } => {
            format!("it is busy {} of the time and {} bundles wait", percent(*busy), rate(*queued))
        }
        Reason::SlowSink { busy, in_call_ms, problem } => {
            let mut text = match in_call_ms {
                1_000.. => format!("one call has taken {} so far", span(*in_call_ms)),
                _ => format!("it writes {} of the time", percent(*busy)),
            };
            problem.iter().for_each(|problem| text.push_str(&format!(": {problem}")));
            text
        }
        Reason::AtEnd => "its results come when its input ends, and it has not ended".to_owned(),
        Reason::NotAsked => "it has rows and is not asked: too much is in flight".to_owned(),
        Reason::FarBehind { lag_rows, rows_per_s, lag_per_s } => {
            far_behind(*lag_rows, *rows_per_s, *lag_per_s)
        }
        Reason::FutureRows { rows_per_s } => format!(
            "{} rows/s lie too far in the future and are left out: the clock of a device",
            rate(*rows_per_s)
        ),
        Reason::SlowClock { pace } => {
            format!("rows come, but their times advance {pace:.2} s a second")
        }
        Reason::NoRowYet => "it has given no row yet".to_owned(),
        Reason::OthersEnded => {
            "all other inputs have ended; this one does not end by itself".to_owned()
        }
        Reason::Silent { since_ms, .. } => {
            let ago = since_ms.map_or_else(|| "a while".to_owned(), ago);
            format!("no row for {ago}")
        }
    }
}

fn far_behind(lag_rows: u64, rows_per_s: f64, lag_per_s: f64) -> String {
    let lag = plural(lag_rows, "row");
    if lag_per_s < 0.0 {
        let left_ms = (lag_rows as f64 / -lag_per_s * 1_000.0) as i64;
        return format!(
            "{lag} behind, reads {} rows/s, has caught up in {}",
            rate(rows_per_s),
            span(left_ms)
        );
    }
    let comes = rate(rows_per_s + lag_per_s);
    format!("{lag} behind and never catches up: {comes} rows/s come, {} are read", rate(rows_per_s))
}

fn names(missing: &[String]) -> String {
    if missing.is_empty() { "all stages".to_owned() } else { missing.join(", ") }
}

/// All of it for a terminal.
pub(super) fn whole(why: &Why) -> String {
    let mut lines = vec![headline(why), String::new()];
    let mut add = |heading: &str, text: String| {
        for (place, line) in text.lines().enumerate() {
            let heading = if place == 0 { heading } else { "" };
            lines.push(format!("{heading:<10}{line}").trim_end().to_owned());
        }
    };
    if why.verdict != Verdict::Ended {
        add("held by", format!("{}: {}", holder(why), explanation(why)));
        add("path", path(why));
    }
    for (stage, held_back_ms) in &why.by_design {
        add("by design", format!("{stage} waits {}", span(*held_back_ms)));
    }
    add("evidence", evidence(why));
    add("without", without(why).unwrap_or_default());
    add("next", next(why).unwrap_or_default());
    add("advice", why.advice.clone().unwrap_or_default());
    lines.join("\n") + "\n"
}

fn headline(why: &Why) -> String {
    let watermark = match why.watermark {
        Some(watermark) => format!("output watermark {}", moment(watermark, why.at_ms)),
        None => "no output watermark yet".to_owned(),
    };
    let standing = why.standing_ms().map(span);
    match (why.verdict, standing) {
        (Verdict::Ended, _) => format!("{}: all input has ended", why.job),
        (Verdict::Flowing, _) => format!("{}: {watermark}, flowing", why.job),
        (Verdict::Behind, _) => format!("{}: {watermark}, moving, but behind", why.job),
        (_, Some(standing)) => format!("{}: {watermark}, standing still for {standing}", why.job),
        (_, None) => format!("{}: {watermark}", why.job),
    }
}

fn holder(why: &Why) -> String {
    let kind = match why.holder.kind {
        StageKind::Source => "source",
        StageKind::Transform => "stage",
        StageKind::Operator => "operator",
        StageKind::Sink => "sink",
    };
    match &why.holder.split {
        Some((place, split)) if !split.is_empty() => {
            format!("{kind} {}, split {place} ({split})", why.holder.name)
        }
        _ => format!("{kind} {}", why.holder.name),
    }
}

fn path(why: &Why) -> String {
    let mut names: Vec<String> = why.path_names.clone();
    if let Some(last) = names.last_mut().filter(|last| **last == why.holder.name) {
        *last = why.holder.label();
    }
    names.join(" ← ")
}

fn evidence(why: &Why) -> String {
    if why.evidence.is_empty() {
        return String::new();
    }
    let headings = ["split", "watermark", "last row at", "rows/s", "behind end"];
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(why.evidence.iter().map(|of| cells(of, why.at_ms)));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    let notes = std::iter::once("").chain(why.evidence.iter().map(|of| of.note.as_str()));
    for (row, note) in rows.iter().zip(notes) {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        if note == "holds" {
            text.push_str("← ");
        }
        text.push_str(note);
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if let Reason::Silent { is_caught_up: true, .. } = why.reason {
        text.push_str("nothing is there to read: the producer is silent\n");
    }
    text
}

fn cells(of: &Evidence, at_ms: i64) -> [String; 5] {
    [
        of.split.clone(),
        of.watermark.map_or_else(|| "none".to_owned(), |time| moment(time, at_ms)),
        of.last_row_at_ms
            .map_or_else(|| "never".to_owned(), |time| moment(time / 1_000 * 1_000, at_ms)),
        of.rows_per_s.map_or_else(|| "?".to_owned(), rate),
        of.lag_rows.map_or_else(|| "?".to_owned(), |lag| format!("{} rows", count(lag))),
    ]
}

fn without(why: &Why) -> Option<String> {
    let without = why.without.as_ref()?;
    if why.verdict == Verdict::Flowing || why.verdict == Verdict::Ended {
        return None;
    }
    let Some(watermark) = without.watermark else {
        return Some("nothing else would hold results back".to_owned());
    };
    let shown = moment(watermark, why.at_ms);
    let Some(gain_ms) = without.gain_ms else {
        return Some(format!("the watermark would be {shown}"));
    };
    if gain_ms <= 0 {
        return Some("nothing would change: another input is as far behind".to_owned());
    }
    let mut text = format!("the watermark would be {shown} ({} further)", span(gain_ms));
    if without.windows > 0 {
        text.push_str(&format!(", {} would close now", plural(without.windows, "window end")));
    }
    Some(text)
}

fn next(why: &Why) -> Option<String> {
    let next = why.next.as_ref()?;
    let end = moment(next.window_end_ms, why.at_ms);
    let closes = moment(next.window_end_ms - 1, why.at_ms);
    let mut text = format!(
        "a window of {} that ends at {end} closes when the watermark reaches {closes}",
        next.stage
    );
    if let (Some(in_ms), Verdict::Flowing | Verdict::Behind) = (next.in_ms, why.verdict) {
        text.push_str(&format!(", in about {} at the present pace", span(in_ms)));
    }
    Some(text)
}
