//! Numbers from a seed: splitmix64.

/// A stream of numbers that its seed determines.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; zero for an `end` of zero.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next_u64() % end as u64) as usize }
    }

    /// A number of a range, both ends included.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True so many times of a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<'t, T>(&mut self, several: &'t [T]) -> &'t T {
        &several[self.below(several.len())]
    }

    /// Brings them into a random order.
    pub fn shuffle<T>(&mut self, several: &mut [T]) {
        for last in (1..several.len()).rev() {
            several.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_stream() {
        let stream = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.next_u64()]
        };
        // The published first outputs of splitmix64 for the seed 1234567.
        assert_eq!(stream(1_234_567), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut several: Vec<usize> = (0..50).collect();
        Rng::new(7).shuffle(&mut several);
        assert_ne!(several, (0..50).collect::<Vec<_>>());
        several.sort_unstable();
        assert_eq!(several, (0..50).collect::<Vec<_>>());
    }
}
