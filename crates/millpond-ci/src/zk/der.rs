//! As much of DER as the oldest certificates need: those of version 1, which `openssl x509 -req` makes without an
//! extension file, and which webpki does not read.

/// A certificate of version 1, in slices of its bytes.
#[derive(Debug)]
pub(super) struct Version1<'a> {
    /// What is signed.
    pub(super) signed: &'a [u8],
    /// The contents of the signature's algorithm.
    pub(super) algorithm: &'a [u8],
    /// The signature.
    pub(super) signature: &'a [u8],
    /// The contents of the issuer's name.
    pub(super) issuer: &'a [u8],
    /// Seconds since 1970 from which on it is valid.
    pub(super) not_before: i64,
    /// Seconds since 1970 until which it is valid.
    pub(super) not_after: i64,
    /// Its public key.
    pub(super) key: PublicKey<'a>,
}

/// A public key.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicKey<'a> {
    /// The contents of its algorithm.
    pub(super) algorithm: &'a [u8],
    /// The key.
    pub(super) key: &'a [u8],
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Reads a certificate of version 1; `None` for any other.
pub(super) fn version_1(certificate: &[u8]) -> Option<Version1<'_>> {
    let (_, mut outer, _) = value(certificate, SEQUENCE)?;
    let (signed, mut inner, rest) = value(outer, SEQUENCE)?;
    outer = rest;
    let (_, algorithm, rest) = value(outer, SEQUENCE)?;
    let (_, signature, _) = value(rest, BITS)?;
    let mut next = |tag| {
        let (_, contents, rest) = value(inner, tag)?;
        inner = rest;
        Some(contents)
    };
    // Versions 2 and 3 have a tag of their own before the serial number.
    next(INTEGER)?;
    next(SEQUENCE)?;
    let (issuer, validity, _subject, key) = (next(SEQUENCE)?, next(SEQUENCE)?, next(SEQUENCE)?, next(SEQUENCE)?);
    let (not_before, rest) = time(validity)?;
    let (not_after, _) = time(rest)?;
    Some(Version1 {
        signed,
        algorithm,
        signature: signature.strip_prefix(&[0])?,
        issuer,
        not_before,
        not_after,
        key: public_key(key)?,
    })
}

/// Reads the contents of a SubjectPublicKeyInfo.
pub(super) fn public_key(contents: &[u8]) -> Option<PublicKey<'_>> {
    let (_, algorithm, rest) = value(contents, SEQUENCE)?;
    let (_, key, _) = value(rest, BITS)?;
    Some(PublicKey { algorithm, key: key.strip_prefix(&[0])? })
}

/// A value with this tag: all of its bytes, its contents, and what follows.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = match rest.split_first()? {
        (short, rest) if *short < 0x80 => (usize::from(*short), rest),
        (long, rest) => {
            let (digits, rest) = rest.split_at_checked(usize::from(*long & 0x7f)).filter(|(it, _)| it.len() <= 4)?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
    };
    let (contents, following) = rest.split_at_checked(length)?;
    Some((&bytes[..bytes.len() - following.len()], contents, following))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, and what follows.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let is_short = bytes.first() == Some(&UTC_TIME);
    let (_, text, rest) = value(bytes, if is_short { UTC_TIME } else { GENERALIZED_TIME })?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, text) = text.split_at_checked(if is_short { 2 } else { 4 })?;
    let year: i64 = year.parse().ok()?;
    let year = match year {
        _ if !is_short => year,
        50.. => 1900 + year,
        _ => 2000 + year,
    };
    let field = |at: usize| text.get(at * 2..at * 2 + 2)?.parse::<i64>().ok();
    let (month, day) = (field(0)?, field(1)?);
    let seconds = field(2)? * 3600 + field(3)? * 60 + field(4)?;
    Some((days(year, month, day) * 86400 + seconds, rest))
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let of = |text: &str, tag| {
            let bytes = [&[tag, text.len() as u8], text.as_bytes()].concat();
            time(&bytes).map(|(time, _)| time)
        };
        assert_eq!(of("700101000000Z", UTC_TIME), Some(0));
        assert_eq!(of("240229120001Z", UTC_TIME), Some(1_709_208_001));
        assert_eq!(of("20500101000000Z", GENERALIZED_TIME), Some(2_524_608_000));
        assert_eq!(of("2024", GENERALIZED_TIME), None);
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        assert!(value(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], SEQUENCE).is_none());
        assert!(value(&[0x30, 5, 1], SEQUENCE).is_none());
        assert!(version_1(&[0x30, 0]).is_none());
    }
}
