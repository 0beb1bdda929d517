//! Protobuf's wire format: tags, varints, lengths. Borrows from the body, allocates nothing.

use super::Problem;

/// Where the bytes of one message are read.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The tag before each value.
pub(super) struct Tag {
    pub(super) number: u32,
    pub(super) wire_type: u8,
}

/// A 64-bit varint.
pub(super) const VARINT: u8 = 0;
/// Eight bytes.
pub(super) const FIXED64: u8 = 1;
/// A length and that many bytes.
pub(super) const LENGTH: u8 = 2;
/// Beginning of a group.
const START_GROUP: u8 = 3;
/// End of a group.
const END_GROUP: u8 = 4;
/// Four bytes.
const FIXED32: u8 = 5;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next tag, or `None` at the end. `message` is for errors.
    pub(super) fn tag(&mut self, message: &str) -> Result<Option<Tag>, Problem> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.raw_varint()?;
        let wire_type = (tag & 7) as u8;
        if wire_type == END_GROUP {
            return Err(Problem::EndGroup { message: message.to_owned() });
        }
        let number = (tag >> 3) as i32;
        match u32::try_from(number) {
            Ok(number) if number > 0 => Ok(Some(Tag { number, wire_type })),
            _ => Err(Problem::IllegalTag { message: message.to_owned(), number, tag }),
        }
    }

    /// The value of a varint field.
    pub(super) fn varint(&mut self, tag: &Tag, field: &str) -> Result<u64, Problem> {
        expect(tag, VARINT, field)?;
        self.raw_varint()
    }

    /// The value of a field of eight bytes.
    pub(super) fn fixed64(&mut self, tag: &Tag, field: &str) -> Result<[u8; 8], Problem> {
        expect(tag, FIXED64, field)?;
        self.raw_fixed64()
    }

    /// The value of a field with a length.
    pub(super) fn bytes(&mut self, tag: &Tag, field: &str) -> Result<&'a [u8], Problem> {
        expect(tag, LENGTH, field)?;
        self.raw_bytes()
    }

    /// Steps over a value, and over whole groups, without recursion.
    pub(super) fn skip(&mut self, tag: &Tag) -> Result<(), Problem> {
        let mut wire_type = tag.wire_type;
        let mut depth = 0_usize;
        loop {
            match wire_type {
                VARINT => drop(self.raw_varint()?),
                FIXED64 => drop(self.take(8)?),
                LENGTH => drop(self.raw_bytes()?),
                START_GROUP => depth += 1,
                // A tag that ends a group is refused where it stands first, so some group was begun.
                END_GROUP => depth -= 1,
                FIXED32 => drop(self.take(4)?),
                other => return Err(Problem::IllegalWireType(other)),
            }
            if depth == 0 {
                return Ok(());
            }
            wire_type = (self.raw_varint()? & 7) as u8;
        }
    }

    /// A varint without a tag, as in packed lists.
    pub(super) fn raw_varint(&mut self) -> Result<u64, Problem> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().enumerate() {
            if index == 10 {
                return Err(Problem::IntegerOverflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { Problem::IntegerOverflow } else { Problem::UnexpectedEnd })
    }

    /// Eight bytes without a tag, as in packed lists.
    pub(super) fn raw_fixed64(&mut self) -> Result<[u8; 8], Problem> {
        Ok(self.take(8)?.try_into().expect("eight bytes were taken"))
    }

    fn raw_bytes(&mut self) -> Result<&'a [u8], Problem> {
        let length = self.raw_varint()?;
        if length > i64::MAX as u64 {
            return Err(Problem::NegativeLength);
        }
        self.take(usize::try_from(length).map_err(|_| Problem::UnexpectedEnd)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Problem> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Problem::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn expect(tag: &Tag, wire_type: u8, field: &str) -> Result<(), Problem> {
    if tag.wire_type == wire_type {
        return Ok(());
    }
    Err(Problem::WrongWireType { field: field.to_owned(), wire_type: tag.wire_type })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_end_where_they_end() {
        let mut reader = Reader::new(&[0xac, 0x02, 0x01]);
        assert_eq!(reader.raw_varint(), Ok(300));
        assert_eq!(reader.raw_varint(), Ok(1));
        assert_eq!(reader.raw_varint(), Err(Problem::UnexpectedEnd));
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Reader::new(&minus_one).raw_varint(), Ok(u64::MAX));
        assert_eq!(Reader::new(&[0x80; 11]).raw_varint(), Err(Problem::IntegerOverflow));
        assert_eq!(Reader::new(&[0x80; 10]).raw_varint(), Err(Problem::IntegerOverflow));
        assert_eq!(Reader::new(&[0x80; 9]).raw_varint(), Err(Problem::UnexpectedEnd));
    }

    #[test]
    fn lengths_do_not_lead_out_of_the_body() {
        let tag = Tag { number: 1, wire_type: LENGTH };
        assert_eq!(Reader::new(&[3, 1, 2]).bytes(&tag, "f"), Err(Problem::UnexpectedEnd));
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(Reader::new(&huge).bytes(&tag, "f"), Err(Problem::UnexpectedEnd));
        let negative = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Reader::new(&negative).bytes(&tag, "f"), Err(Problem::NegativeLength));
    }

    #[test]
    fn groups_are_skipped_whole() {
        // Group 2 { group 3 { varint } }, then field 1.
        let bytes = [0x13, 0x1b, 0x08, 0x05, 0x1c, 0x14, 0x08, 0x07];
        let mut reader = Reader::new(&bytes);
        let group = reader.tag("M").unwrap().unwrap();
        reader.skip(&group).unwrap();
        let field = reader.tag("M").unwrap().unwrap();
        assert_eq!((field.number, reader.varint(&field, "f")), (1, Ok(7)));
        assert!(reader.is_empty());
        let mut open = Reader::new(&[0x13, 0x1b]);
        let group = open.tag("M").unwrap().unwrap();
        assert_eq!(open.skip(&group), Err(Problem::UnexpectedEnd));
    }

    #[test]
    fn tags_that_cannot_be_are_refused() {
        let end = Reader::new(&[0x0c]).tag("Pod").err().unwrap();
        assert_eq!(end.to_string(), "proto: Pod: wiretype end group for non-group");
        let zero = Reader::new(&[0x02]).tag("Pod").err().unwrap();
        assert_eq!(zero.to_string(), "proto: Pod: illegal tag 0 (wire type 2)");
    }
}
