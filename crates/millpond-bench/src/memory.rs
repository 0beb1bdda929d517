//! The most memory that this process has held, as Linux counts it.

use std::fs;

/// Forgets the peak so far, where the system lets us: what comes after is measured from what is held now.
pub(crate) fn reset_peak() {
    // Without it the peak is that of the whole process: too high, never too low.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The peak since the last reset; `None` if the system does not report it.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_known() {
        reset_peak();
        let held = vec![1_u8; 64 << 20];
        assert!(peak_bytes().unwrap() > held.iter().map(|byte| u64::from(*byte)).sum());
    }
}
