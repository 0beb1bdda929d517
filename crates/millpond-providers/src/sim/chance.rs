//! Chance that repeats itself: every draw is a function of the seed and of what is looked at. No generator with a
//! state, so that neither a restart nor the order of calls changes what happens.

use millpond_api::sim_script::Share;

/// A number that depends on nothing but its arguments (FNV-1a over the parts, mixed as splitmix64 does).
pub(super) fn number(seed: u64, parts: &[&str]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = OFFSET ^ mix(seed);
    for part in parts {
        // The length first, so that no two lists of parts read the same.
        let bytes = (part.len() as u64).to_le_bytes().into_iter().chain(part.bytes());
        hash = bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    }
    mix(hash)
}

fn mix(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Whether a thing with that number is in the share.
pub(super) fn is_in(share: Share, number: u64) -> bool {
    below(u64::from(Share::WHOLE_MILLIONTHS), number) < u64::from(share.millionths())
}

/// The number scaled to `0..limit`.
pub(super) fn below(limit: u64, number: u64) -> u64 {
    ((u128::from(number) * u128::from(limit)) >> 64) as u64
}

/// The number as a fraction above 0 and at most 1.
pub(super) fn fraction(number: u64) -> f64 {
    ((number >> 11) + 1) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_out() {
        for percent in [0, 5, 50, 100] {
            let share = Share::percent(percent);
            let hits = (0..10_000u32).filter(|it| is_in(share, number(7, &["a", &it.to_string()]))).count();
            let expected = percent as usize * 100;
            assert!(hits.abs_diff(expected) < 200, "{percent} %: {hits}");
        }
        assert!(!is_in(Share::percent(0), 0));
        assert!(is_in(Share::percent(100), u64::MAX));
    }

    #[test]
    fn parts_are_distinguished() {
        assert_ne!(number(0, &["ab", "c"]), number(0, &["a", "bc"]));
        assert_ne!(number(0, &["a"]), number(1, &["a"]));
        assert_eq!(number(3, &["a", "b"]), number(3, &["a", "b"]));
        assert!(fraction(0) > 0.0 && fraction(u64::MAX) <= 1.0);
    }
}
