//! Numbers that look random and are the same everywhere: splitmix64.
//!
//! Only integers, multiplication and square roots are used, which IEEE 754 rounds in exactly one way, so that a seed
//! gives the same workload on every machine.

/// The generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// Steps of a logarithmic scale, as a power of two.
const LOGARITHMIC_BITS: u32 = 20;

impl Random {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A whole number below a limit: the high word of bits × limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A whole number between two, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A number with an evenly distributed logarithm: as many between 1 and 2 as between 2 and 4.
    pub fn logarithmic(&mut self, low: f64, high: f64) -> f64 {
        let steps = self.below(1 << LOGARITHMIC_BITS);
        // low · (high / low)^(steps / 2^20), by the binary digits of the exponent.
        let (mut value, mut factor) = (low, high / low);
        for digit in (0..LOGARITHMIC_BITS).rev() {
            factor = factor.sqrt();
            if steps >> digit & 1 == 1 {
                value *= factor;
            }
        }
        value
    }

    /// Puts things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            things.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next_bits(), random.next_bits(), random.next_bits()], expected);
    }

    #[test]
    fn a_logarithmic_scale_has_as_many_in_each_octave() {
        let mut random = Random::new(1);
        let mut octaves = [0_u32; 4];
        for _ in 0..4_000 {
            let value = random.logarithmic(0.5, 8.0);
            assert!((0.5..8.0).contains(&value), "{value}");
            octaves[(value / 0.5).log2() as usize] += 1;
        }
        assert!(octaves.iter().all(|count| (900..1_100).contains(count)), "{octaves:?}");
    }

    #[test]
    fn shuffling_keeps_everything() {
        let mut things: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut things);
        assert_ne!(things, (0..100).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..100).collect::<Vec<_>>());
    }
}
