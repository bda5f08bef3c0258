//! Random numbers that depend on (seed, stream, index) alone, so that any split of the work gives
//! the same events.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014),
//! seeded by a mix of the three numbers. Not for secrets.

/// A sequence of random numbers for one event.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn finish(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Random {
    /// The numbers of event `index` in `stream`.
    pub fn new(seed: u64, stream: u64, index: u64) -> Self {
        let state = finish(seed.wrapping_add(GOLDEN));
        let state = finish(state ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(GOLDEN));
        Random { state: finish(state ^ index.wrapping_mul(0xABC9_8388_FB8F_AC03).wrapping_add(1)) }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        finish(self.state)
    }

    /// Uniform over `0..below`; `below` is at least 1.
    pub fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(below)) >> 64) as u64
    }

    /// Uniform over `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    /// Uniform over [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Normally distributed (Box and Muller).
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        mean + deviation * radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Log-normally distributed.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * self.normal(0.0, sigma).exp()
    }

    /// Exponentially distributed: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Ranks `0..n` with P(rank) proportional to 1 / (rank + 1)^s, one draw in constant time (Walker's
/// alias method).
#[derive(Clone, Debug)]
pub struct Zipf {
    /// For each slot the share that stays and the rank that takes the rest.
    slots: Vec<(f64, usize)>,
}

impl Zipf {
    /// A distribution over `ranks` ranks, at least one.
    pub fn new(ranks: usize, exponent: f64) -> Self {
        let weights: Vec<f64> =
            (0..ranks).map(|rank| (rank as f64 + 1.0).powf(-exponent)).collect();
        let mean = weights.iter().sum::<f64>() / ranks as f64;
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut slots: Vec<(f64, usize)> = (0..ranks).map(|rank| (1.0, rank)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..ranks).partition(|&rank| shares[rank] < 1.0);
        while let (Some(&less), Some(&more)) = (small.last(), large.last()) {
            small.pop();
            slots[less] = (shares[less], more);
            shares[more] -= 1.0 - shares[less];
            if shares[more] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        Zipf { slots }
    }

    /// A rank.
    pub fn draw(&self, random: &mut Random) -> usize {
        let slot = random.below(self.slots.len() as u64) as usize;
        let (share, other) = self.slots[slot];
        if random.unit() < share { slot } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_numbers_whoever_asks() {
        let draw = |index| Random::new(7, 3, index).bits();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        assert_ne!(Random::new(7, 3, 0).bits(), Random::new(8, 3, 0).bits());
        assert_ne!(Random::new(7, 3, 0).bits(), Random::new(7, 4, 0).bits());
    }

    #[test]
    fn ranks_come_as_often_as_zipf_says() {
        let zipf = Zipf::new(100, 0.9);
        let total: f64 = (1..=100).map(|rank| f64::from(rank).powf(-0.9)).sum();
        let mut counts = [0u32; 100];
        let draws = 200_000;
        for index in 0..draws {
            counts[zipf.draw(&mut Random::new(1, 2, index))] += 1;
        }
        for rank in [0, 1, 9, 99] {
            let expected = draws as f64 * (rank as f64 + 1.0).powf(-0.9) / total;
            let off = (f64::from(counts[rank]) - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "rank {rank}: {} of {expected}", counts[rank]);
        }
    }

    #[test]
    fn distributions_have_their_means() {
        let mean = |draw: &dyn Fn(&mut Random) -> f64| {
            let n = 100_000;
            (0..n).map(|index| draw(&mut Random::new(9, 9, index))).sum::<f64>() / n as f64
        };
        assert!((mean(&|r| r.normal(55.0, 8.0)) - 55.0).abs() < 0.1);
        assert!((mean(&|r| r.exponential(4.0)) - 4.0).abs() < 0.05);
        assert!((mean(&|r| r.unit()) - 0.5).abs() < 0.005);
        assert!((mean(&|r| f64::from(u8::from(r.chance(0.3)))) - 0.3).abs() < 0.01);
    }
}
