//! Writing DER: just what a certificate is made of.

/// SEQUENCE.
pub(super) const SEQUENCE: u8 = 0x30;
/// OBJECT IDENTIFIER.
pub(super) const OID: u8 = 0x06;
/// INTEGER.
pub(super) const INTEGER: u8 = 0x02;
/// BOOLEAN.
pub(super) const BOOLEAN: u8 = 0x01;
/// BIT STRING.
pub(super) const BIT_STRING: u8 = 0x03;
/// OCTET STRING.
pub(super) const OCTET_STRING: u8 = 0x04;

/// One element: tag, length, content.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = content.len();
    if length < 0x80 {
        bytes.push(length as u8);
    } else {
        let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        bytes.push(0x80 | digits.len() as u8);
        bytes.extend(digits);
    }
    bytes.extend(content);
    bytes
}

/// An element that holds others.
pub(super) fn constructed(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    element(tag, &parts.concat())
}

/// A BIT STRING of whole bytes.
pub(super) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    constructed(BIT_STRING, &[&[0], bytes])
}

/// A time: UTCTime up to 2049, GeneralizedTime after that.
pub(super) fn time(at: jiff::Timestamp) -> Vec<u8> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let year = at.to_zoned(jiff::tz::TimeZone::UTC).year();
    if (1950..2050).contains(&year) {
        element(UTC_TIME, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        element(GENERALIZED_TIME, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

/// An extension of a certificate.
pub(super) fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let flag: &[u8] = if critical { &[BOOLEAN, 1, 0xff] } else { &[] };
    constructed(SEQUENCE, &[&element(OID, oid), flag, &element(OCTET_STRING, value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        assert_eq!(element(OCTET_STRING, &[7]), [4, 1, 7]);
        assert_eq!(element(OCTET_STRING, &[0; 127])[..2], [4, 127]);
        assert_eq!(element(OCTET_STRING, &[0; 128])[..3], [4, 0x81, 128]);
        assert_eq!(element(OCTET_STRING, &[0; 300])[..4], [4, 0x82, 1, 44]);
    }
}
