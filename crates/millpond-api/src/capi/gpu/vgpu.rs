//! vGPU profiles: `grid_t4-4q`, `nvidia_a100-40c`, `grid_a100-1-5c`.

/// The purpose of a vGPU, by the letter at the end of its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// `c`: computing.
    Compute,
    /// `q`: workstations; computing works too.
    Workstation,
    /// `a` and `b`: desktops and applications; no computing.
    Desktop,
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The card: `t4`.
    pub card: String,
    /// Memory of the part, in GiB; half a GiB counts as one.
    pub memory_gib: u32,
    /// What it is for.
    pub purpose: Use,
}

/// Parses a profile; `None` if it is not one of NVIDIA's.
pub fn parse_profile(text: &str) -> Option<Profile> {
    let rest = text.strip_prefix("grid_").or_else(|| text.strip_prefix("nvidia_"))?;
    let (card, size) = rest.rsplit_once('-')?;
    let purpose = match size.bytes().last()? {
        b'c' => Use::Compute,
        b'q' => Use::Workstation,
        b'a' | b'b' => Use::Desktop,
        _ => return None,
    };
    let memory: u32 = size[..size.len() - 1].parse().ok().filter(|memory| *memory <= 1024)?;
    let named =
        !card.is_empty() && card.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    named.then(|| Profile { card: card.to_owned(), memory_gib: memory.max(1), purpose })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read() {
        let read = |text: &str| parse_profile(text).map(|it| (it.card, it.memory_gib, it.purpose));
        assert_eq!(read("grid_t4-16c"), Some(("t4".to_owned(), 16, Use::Compute)));
        assert_eq!(read("grid_t4-1a"), Some(("t4".to_owned(), 1, Use::Desktop)));
        assert_eq!(read("grid_m10-0b"), Some(("m10".to_owned(), 1, Use::Desktop)));
        assert_eq!(read("nvidia_l40s-24q"), Some(("l40s".to_owned(), 24, Use::Workstation)));
        assert_eq!(read("grid_a100-1-5c"), Some(("a100-1".to_owned(), 5, Use::Compute)));
        for text in [
            "",
            "grid_",
            "grid_t4",
            "grid_t4-",
            "grid_t4-c",
            "t4-16c",
            "grid_t4-16x",
            "grid_-4c",
            "grid_t4-9999999c",
            "grid_t4-4ü",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
