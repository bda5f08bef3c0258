//! The windowing functions of SQL, one description each.
//!
//! The parser, the binder, the check for Flink and the error messages know of a window kind only
//! what stands here. A further kind is one more entry of [`WINDOW_FUNCTIONS`]; which windows hold a
//! time is said by its shape in `thalweg_operators::window::WindowSpec`.
//!
//! Flink's rules that the table states: sizes are multiples of their slide or step (HOP excepted in
//! batch mode and in the old form), the old form takes no offset and knows no CUMULATE, and only
//! SESSION takes keys.

use thalweg_core::{Error, Result};
use thalweg_operators::window::{WindowKind, WindowSpec};

/// A windowing function.
#[derive(Debug)]
pub struct WindowFunction {
    /// Its name in SQL.
    pub name: &'static str,
    /// Its lengths in the order of the call, each by its name as an argument and its name in
    /// messages. The second one, if any, is a multiple of the first.
    lengths: &'static [(&'static str, &'static str)],
    /// True if a last, optional interval shifts the windows.
    has_offset: bool,
    /// True if the windows belong to keys: `PARTITION BY` is allowed.
    pub has_keys: bool,
    /// True if it can be called in GROUP BY, in the old form without a table.
    pub is_in_group_by: bool,
    /// True if the second length need not be a multiple of the first in batch mode, nor in GROUP BY
    /// as long as it is not smaller.
    may_be_uneven: bool,
    /// A call as an example.
    pub usage: &'static str,
    /// The windows of checked lengths (the second is 0 where there is none) and an offset.
    windows: fn([i64; 2], i64) -> WindowKind,
}

/// A function as most are: with an offset, without keys, also for GROUP BY, and even.
const fn function(
    name: &'static str,
    lengths: &'static [(&'static str, &'static str)],
    usage: &'static str,
    windows: fn([i64; 2], i64) -> WindowKind,
) -> WindowFunction {
    WindowFunction {
        name,
        lengths,
        has_offset: true,
        has_keys: false,
        is_in_group_by: true,
        may_be_uneven: false,
        usage,
        windows,
    }
}

/// All of them.
pub static WINDOW_FUNCTIONS: [WindowFunction; 4] = [
    function(
        "TUMBLE",
        &[("SIZE", "size")],
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE [, offset]))",
        |[size_ms, _], offset_ms| WindowKind::Aligned(WindowSpec::Tumble { size_ms, offset_ms }),
    ),
    WindowFunction {
        may_be_uneven: true,
        ..function(
            "HOP",
            &[("SLIDE", "slide"), ("SIZE", "size")],
            "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)): slide, then size",
            |[slide_ms, size_ms], offset_ms| {
                WindowKind::Aligned(WindowSpec::Hop { slide_ms, size_ms, offset_ms })
            },
        )
    },
    WindowFunction {
        is_in_group_by: false,
        ..function(
            "CUMULATE",
            &[("STEP", "step"), ("SIZE", "max size")],
            "TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)): step, then max size",
            |[step_ms, max_size_ms], offset_ms| {
                WindowKind::Aligned(WindowSpec::Cumulate { step_ms, max_size_ms, offset_ms })
            },
        )
    },
    WindowFunction {
        has_offset: false,
        has_keys: true,
        ..function(
            "SESSION",
            &[("GAP", "gap")],
            "TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE))",
            |[gap_ms, _], _| WindowKind::Session { gap_ms },
        )
    },
];

/// Which lengths of windows are allowed where.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WindowForm {
    /// A table function.
    Table,
    /// The old form in GROUP BY: it takes no offset.
    GroupBy,
}

impl WindowFunction {
    /// The function of this name, in upper case.
    pub fn named(name: &str) -> Option<&'static WindowFunction> {
        WINDOW_FUNCTIONS.iter().find(|function| function.name == name)
    }

    /// The names of those that can be called in GROUP BY.
    pub fn names_in_group_by() -> Vec<&'static str> {
        let old = WINDOW_FUNCTIONS.iter().filter(|function| function.is_in_group_by);
        old.map(|function| function.name).collect()
    }

    /// The names of its intervals in the order of the call.
    pub fn arguments(&self) -> Vec<&'static str> {
        let lengths = self.lengths.iter().map(|(argument, _)| *argument);
        lengths.chain(self.has_offset.then_some("OFFSET")).collect()
    }

    /// How many of its intervals must be written.
    pub fn needed_intervals(&self) -> usize {
        self.lengths.len()
    }

    /// True if one length is a multiple of another.
    pub fn has_step(&self) -> bool {
        self.lengths.len() > 1
    }

    /// Its call in words.
    pub fn form(&self) -> String {
        let keys = if self.has_keys { " [PARTITION BY key]" } else { "" };
        let lengths: Vec<&str> = self.lengths.iter().map(|(_, name)| *name).collect();
        let offset = if self.has_offset { " [, offset]" } else { "" };
        format!("{}(data{keys}, time, {}{offset})", self.name, lengths.join(", "))
    }

    /// The windows of these intervals. Batch mode takes uneven ones.
    ///
    /// # Errors
    /// If they are too few, too many, not above zero, or do not fit each other.
    pub fn windows(
        &self,
        intervals: &[i64],
        form: WindowForm,
        is_batch: bool,
    ) -> Result<WindowKind> {
        let has_offset = self.has_offset && form == WindowForm::Table;
        let (lengths, offset) = match intervals.split_at_checked(self.lengths.len()) {
            Some((lengths, [])) => (lengths, 0),
            Some((lengths, &[offset])) if has_offset => (lengths, offset),
            _ => return Err(self.wrong_number(intervals.len())),
        };
        self.check(lengths, form, is_batch)?;
        let mut both = [0; 2];
        both.iter_mut().zip(lengths).for_each(|(to, length)| *to = *length);
        Ok((self.windows)(both, offset))
    }

    fn wrong_number(&self, found: usize) -> Error {
        Error::plan(format!("{} does not take {found} intervals", self.name))
            .hint(format!("the form is {}", self.form()))
    }

    fn check(&self, lengths: &[i64], form: WindowForm, is_batch: bool) -> Result<()> {
        let name = self.name;
        for ((_, word), ms) in self.lengths.iter().zip(lengths) {
            if *ms <= 0 {
                let message = format!("{name} needs a {word} above zero, but it is {ms} ms");
                return Err(Error::plan(message));
            }
        }
        let ([(_, step), (_, size)], &[step_ms, size_ms]) = (self.lengths, lengths) else {
            return Ok(());
        };
        let is_old_hop = form == WindowForm::GroupBy && size_ms >= step_ms;
        if size_ms % step_ms == 0 || (self.may_be_uneven && (is_batch || is_old_hop)) {
            return Ok(());
        }
        Err(Error::plan(format!(
            "{name} requires {size} to be a multiple of {step}, but {size} is {size_ms} ms and {step} {step_ms} ms"
        ))
        .hint(format!("{step} comes first: {name}(data, time, {step}, {size})")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_windows_of_each_function_fit() {
        for function in &WINDOW_FUNCTIONS {
            let lengths = vec![1000; function.needed_intervals()];
            let windows = function.windows(&lengths, WindowForm::Table, false);
            let text = windows.expect("equal lengths fit").to_string();
            let name = text.split('(').next();
            assert_eq!(name, Some(function.name), "EXPLAIN calls it by its name in SQL");
            assert_eq!(text.matches("1000 ms").count(), lengths.len(), "{text}");
            let too_many = vec![1000; function.arguments().len() + 1];
            assert!(function.windows(&too_many, WindowForm::Table, false).is_err(), "{text}");
        }
    }

    #[test]
    fn uneven_hops_are_for_batch_mode_and_the_old_form() {
        let hop = WindowFunction::named("HOP").expect("there is one");
        for (lengths, is_allowed) in [
            ([5, 10], [true, true, true]),
            ([4, 10], [false, true, true]),
            ([10, 5], [false, false, true]),
            ([5, 0], [false, false, false]),
        ] {
            let found = [
                (WindowForm::Table, false),
                (WindowForm::GroupBy, false),
                (WindowForm::Table, true),
            ]
            .map(|(form, is_batch)| hop.windows(&lengths, form, is_batch).is_ok());
            assert_eq!(found, is_allowed, "{lengths:?}");
        }
    }
}
