//! Where values stand on an axis, and which of them get a line of the grid.
//!
//! An [`Axis`] holds all values that it was made of: their fractions lie within 0 and 1. Bounds and
//! ticks are numbers that read well: 1, 2 or 5 times a power of ten. It knows no pixels.

use super::Scale;

/// About how many ticks a linear axis has.
const TICKS: f64 = 6.0;
/// Up to how many distinct values of a logarithmic x axis are themselves its ticks.
const OWN_TICKS_MAX: usize = 12;
/// How much of an x axis stays free before the first and behind the last value.
const MARGIN: f64 = 0.03;

/// An interval of numbers with ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
    /// In ascending order.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// An axis whose ends are ticks: from 0 where it is linear.
    pub fn upwards(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let logarithmic = scale == Scale::Log;
        let (low, high) = bounds(values, logarithmic).unwrap_or((1.0, 1.0));
        let ticks = if logarithmic {
            logarithmic_ticks(low, high)
        } else {
            let (low, high) = (low.min(0.0), high.max(0.0));
            linear_ticks(low, if low == high { low + 1.0 } else { high })
        };
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        Self { logarithmic, low, high, ticks }
    }

    /// An axis with the values between its ends, and ticks where they fit.
    pub fn across(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let logarithmic = scale == Scale::Log;
        let (low, high) = bounds(values.iter().copied(), logarithmic).unwrap_or((1.0, 1.0));
        if !logarithmic {
            return Self::across_linear(low, high);
        }
        let margin = if low == high { 2.0 } else { (high / low).powf(MARGIN) };
        let mut axis = Self { logarithmic, low: low / margin, high: high * margin, ticks: vec![] };
        values.retain(|value| axis.fraction(*value).is_some());
        axis.ticks = if axis.has_room_for(&values) { values } else { logarithmic_ticks(low, high) };
        axis.keep_ticks_within();
        axis
    }

    fn across_linear(low: f64, high: f64) -> Self {
        // Zero belongs to the axis where it is near: a distance from it is then seen as such.
        let low = if low > 0.0 && low <= (high - low) / 2.0 { 0.0 } else { low };
        let margin = if low == high { low.abs().max(1.0) / 2.0 } else { (high - low) * MARGIN };
        let ticks = linear_ticks(low, if low == high { low + margin } else { high });
        let low = if low == 0.0 { 0.0 } else { low - margin };
        let mut axis = Self { logarithmic: false, low, high: high + margin, ticks };
        axis.keep_ticks_within();
        axis
    }

    /// An axis of `count` places, each one wide, with a tick in the middle of each.
    pub fn places(count: usize) -> Self {
        let ticks = (0..count).map(|place| place as f64 + 0.5).collect();
        Self { logarithmic: false, low: 0.0, high: count.max(1) as f64, ticks }
    }

    /// How far up the axis a value stands, from 0 to 1; `None` if it has no place on it.
    pub fn fraction(&self, value: f64) -> Option<f64> {
        let fraction = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        (value.is_finite() && fraction.is_finite()).then_some(fraction)
    }

    /// Where bars begin: 0 if the axis has it.
    pub fn ground(&self) -> f64 {
        if self.logarithmic { self.low } else { 0.0 }
    }

    fn has_room_for(&self, values: &[f64]) -> bool {
        let fractions: Vec<f64> = values.iter().filter_map(|value| self.fraction(*value)).collect();
        values.len() <= OWN_TICKS_MAX && fractions.windows(2).all(|two| two[1] - two[0] > 0.06)
    }

    fn keep_ticks_within(&mut self) {
        let (low, high) = (self.low, self.high);
        self.ticks.retain(|tick| (low..=high).contains(tick));
    }
}

/// The least and the greatest value that an axis can show.
fn bounds(values: impl Iterator<Item = f64>, logarithmic: bool) -> Option<(f64, f64)> {
    values
        .filter(|value| value.is_finite() && (!logarithmic || *value > 0.0))
        .map(|value| (value, value))
        .reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// Multiples of a step that reads well, from at most `low` to at least `high`.
fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let wanted = (high - low) / TICKS;
    let power = 10f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0].iter().map(|digit| digit * power).find(|step| *step >= wanted);
    let step = step.unwrap_or(10.0 * power);
    // What rounding adds to a quotient must not cost a tick.
    let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    (0..=(last - first) as usize).map(|index| (first + index as f64) * step).collect()
}

/// Powers of ten from at most `low` to at least `high`; with 2 and 5 times these if they are few.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let digits: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let stride = 1 + (last - first) as usize / 10;
    let powers = (first..=last + stride as i32).step_by(stride);
    let ticks = powers.flat_map(|power| digits.iter().map(move |digit| digit * ten_to(power)));
    let ticks: Vec<f64> = ticks.collect();
    let begin = ticks.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0);
    let end = ticks.iter().position(|tick| *tick >= high * (1.0 - 1e-9)).unwrap_or(begin);
    ticks[begin..=end.max(begin + 1).min(ticks.len() - 1)].to_vec()
}

/// The number nearest to a power of ten, which a product of tens is not.
fn ten_to(power: i32) -> f64 {
    format!("1e{power}").parse().unwrap_or_else(|_| 10f64.powi(power))
}

/// A number as people write it: at most this many digits, and k, M or G for large ones.
pub fn number(value: f64, digits: i32) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_string();
    }
    if !(1e-4..1e13).contains(&size) {
        return format!("{value:e}");
    }
    let (unit, suffix) = match size {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let decimals = (digits - 1 - (size / unit).log10().floor() as i32).max(0) as usize;
    let text = format!("{:.decimals$}", value / unit);
    let text = if decimals == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{text}{suffix}")
}
