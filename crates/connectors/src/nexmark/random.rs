//! Random numbers of events: any draw of any event without the draws before it.
//!
//! Draw `d` of event `i` in a stream is a pure function of (seed, stream, i, d): SplitMix64 seeded
//! by a mix of the first three, whose outputs can be had in any order. So a column can be made
//! alone.
//!
//! [`JavaRandom`] is `java.util.Random` as its documentation specifies it, for the preset `beam`.
//! Nothing here is for secrets.

use thalweg_core::shim::mix64;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The random numbers of one kind of event under one seed.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// A stream; streams of one seed have nothing in common.
    pub fn new(seed: u64, stream: u64) -> Self {
        let key = mix64(seed.wrapping_add(GOLDEN));
        let stream = stream.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(GOLDEN);
        Stream { key: mix64(key ^ stream) }
    }

    /// The numbers of an event.
    #[inline]
    pub fn event(self, number: u64) -> Draws {
        Draws(mix64(self.key ^ number.wrapping_mul(0xABC9_8388_FB8F_AC03).wrapping_add(1)))
    }
}

/// The random numbers of one event.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    /// 64 random bits.
    #[inline]
    pub fn bits(self, draw: u64) -> u64 {
        mix64(self.0.wrapping_add(GOLDEN.wrapping_mul(draw + 1)))
    }
}

/// A number in `0..bound` from the upper half of some bits; `bound` is at most 2^32.
#[inline]
pub fn upper(bits: u64, bound: u64) -> u64 {
    ((bits >> 32) * bound) >> 32
}

/// A number in `0..bound` from the lower half of some bits; `bound` is at most 2^32.
#[inline]
pub fn lower(bits: u64, bound: u64) -> u64 {
    ((bits & 0xFFFF_FFFF) * bound) >> 32
}

/// Prices in cents: 100 * 10^(6u), u uniform over [0, 1).
pub struct Prices {
    /// The price at the lower end of each step of u.
    steps: Vec<f64>,
}

/// Steps of u, a power of two: short enough for five terms of the exponential series.
const STEPS_BITS: u32 = 10;

impl Prices {
    /// The prices.
    pub fn new() -> Self {
        let steps = 1u32 << STEPS_BITS;
        let at = |step| 100.0 * 10f64.powf(6.0 * f64::from(step) / f64::from(steps));
        Prices { steps: (0..steps).map(at).collect() }
    }

    /// The price for some random bits.
    #[inline]
    pub fn price(&self, bits: u64) -> i64 {
        const WIDTH: f64 = 6.0 * std::f64::consts::LN_10 / (1u64 << STEPS_BITS) as f64;
        let step = (bits >> (64 - STEPS_BITS)) as usize;
        // Signed, because that conversion is one instruction.
        let rest = ((bits << STEPS_BITS) >> 11) as i64 as f64 / (1u64 << 53) as f64;
        let x = rest * WIDTH;
        let growth = 1.0 + x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0))));
        (self.steps[step] * growth + 0.5) as i64
    }
}

/// `java.util.Random`: a linear congruence of 48 bits.
#[derive(Clone, Debug)]
pub struct JavaRandom {
    state: u64,
}

impl JavaRandom {
    /// As `new Random(seed)`.
    pub fn new(seed: u64) -> Self {
        JavaRandom { state: (seed ^ 0x5_DEEC_E66D) & ((1 << 48) - 1) }
    }

    #[inline]
    fn next(&mut self, bits: u32) -> u64 {
        self.state = self.state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(11) & ((1 << 48) - 1);
        self.state >> (48 - bits)
    }

    /// As `nextInt(bound)`; `bound` is from 1 to 2^31 - 1.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound.is_power_of_two() {
            return (bound * self.next(31)) >> 31;
        }
        loop {
            let bits = self.next(31);
            let value = bits % bound;
            // The last, incomplete round of values is thrown away.
            if bits - value + (bound - 1) < 1 << 31 {
                return value;
            }
        }
    }

    /// As `nextDouble()`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        let high = self.next(26) << 27;
        (high + self.next(27)) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_s_numbers_are_known() {
        // new Random(42): nextInt(10) is 0, 3, 8; new Random(0).nextInt(16) is 11.
        let mut random = JavaRandom::new(42);
        assert_eq!([random.below(10), random.below(10), random.below(10)], [0, 3, 8]);
        assert_eq!(JavaRandom::new(0).below(16), 11);
        assert!((JavaRandom::new(0).unit() - 0.730_967_787_376_657).abs() < 1e-15);
    }

    #[test]
    fn prices_are_the_power_of_ten() {
        let prices = Prices::new();
        let stream = Stream::new(1, 2);
        for event in 0..100_000 {
            let bits = stream.event(event).bits(0);
            let exact = 100.0 * 10f64.powf(6.0 * (bits as f64 / 2f64.powi(64)));
            let off = (prices.price(bits) as f64 - exact).abs();
            assert!(off <= 0.5 + exact * 1e-10, "{exact}");
        }
        assert_eq!(prices.price(0), 100);
        assert_eq!(prices.price(u64::MAX), 100_000_000);
    }

    #[test]
    fn draws_can_be_had_in_any_order() {
        let event = Stream::new(7, 3).event(5);
        let backwards = [event.bits(1), event.bits(0)];
        assert_eq!(backwards, [event.bits(1), Stream::new(7, 3).event(5).bits(0)]);
        assert_ne!(backwards[0], backwards[1]);
        assert_ne!(event.bits(0), Stream::new(8, 3).event(5).bits(0));
        assert_ne!(event.bits(0), Stream::new(7, 4).event(5).bits(0));
        assert_ne!(event.bits(0), Stream::new(7, 3).event(6).bits(0));
    }
}
