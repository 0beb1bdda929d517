//! Files of bootstrap data that come compressed by gzip (RFC 1952).

/// More than any file of bootstrap data.
const LIMIT_BYTES: usize = 64 << 20;
/// Bytes before the optional fields of the header.
const HEADER: usize = 10;
/// Bytes after the data: checksum and length.
const TRAILER: usize = 8;

/// The content of a file of one member.
pub(crate) fn decompress(packed: &[u8]) -> Result<Vec<u8>, String> {
    let data = body(packed).ok_or("is not gzip")?;
    let content = miniz_oxide::inflate::decompress_to_vec_with_limit(data, LIMIT_BYTES)
        .map_err(|error| format!("cannot be decompressed: {error}"))?;
    let length = packed.last_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    if length == Some(content.len()) { Ok(content) } else { Err("is cut off".to_owned()) }
}

/// The compressed data between header and trailer.
fn body(packed: &[u8]) -> Option<&[u8]> {
    let (header, rest) = packed.split_at_checked(HEADER)?;
    if !header.starts_with(&[0x1f, 0x8b, 8]) {
        return None;
    }
    let flags = header[3];
    let mut rest = rest.get(..rest.len().checked_sub(TRAILER)?)?;
    if flags & 4 != 0 {
        let length = usize::from(u16::from_le_bytes(*rest.first_chunk()?));
        rest = rest.get(2 + length..)?;
    }
    // A name and a comment, each ended by a zero.
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & 2 != 0 { rest.get(2..) } else { Some(rest) }
}
