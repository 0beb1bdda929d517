//! Random name suffixes from a seed.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Letters and digits without vowels and look-alikes, as Kubernetes uses them in names.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The length of a random suffix.
const SUFFIX: usize = 5;
/// The longest name with a suffix that Kubernetes makes.
const LONGEST_NAME: usize = 63;

/// A seeded source of suffixes and other small choices.
pub struct NameGenerator(Mutex<StdRng>);

impl NameGenerator {
    /// A source that gives the same answers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// `prefix` with a random suffix, cut so that the whole is short enough.
    pub fn generate(&self, prefix: &str) -> String {
        let mut end = prefix.len().min(LONGEST_NAME - SUFFIX);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let mut random = self.0.lock();
        let suffix = (0..SUFFIX).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())]));
        prefix[..end].chars().chain(suffix).collect()
    }

    /// A number below `bound`.
    pub fn below(&self, bound: usize) -> usize {
        if bound == 0 { 0 } else { self.0.lock().random_range(0..bound) }
    }

    /// A share between zero and one.
    pub fn share(&self) -> f64 {
        self.0.lock().random_range(0.0..1.0)
    }
}

/// A short hash in the alphabet of names.
pub fn hash_name(bytes: &[u8]) -> String {
    safe_encode(&fnv32a(bytes).to_string())
}

/// FNV-1a, 32 bits.
fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Replaces every character by one that is safe in a name.
fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let names = |seed| (0..3).map(|_| NameGenerator::new(seed).generate("web-")).collect::<Vec<_>>();
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
        let long = NameGenerator::new(1).generate(&"x".repeat(100));
        assert_eq!(long.len(), LONGEST_NAME);
    }

    #[test]
    fn hashes_are_short_and_safe() {
        assert_eq!(fnv32a(b"foobar"), 0xbf9c_f968);
        let hash = hash_name(b"anything");
        assert!(hash.len() <= 10 && hash.bytes().all(|byte| ALPHABET.contains(&byte)));
    }
}
