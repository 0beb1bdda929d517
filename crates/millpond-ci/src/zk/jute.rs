//! Jute, the encoding of ZooKeeper's protocol: numbers in network order, texts and buffers behind their length.

/// A message that is not what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of the server ends too early or has a bad length")]
pub(super) struct Malformed;

/// Writes values.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn int(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn long(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(super) fn buffer(&mut self, value: &[u8]) {
        self.int(value.len() as i32);
        self.0.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.buffer(value.as_bytes());
    }
}

/// Reads values.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.take(1)? != [0])
    }

    /// A buffer; one that is absent is empty.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Malformed)?),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.buffer()?.to_vec()).map_err(|_| Malformed)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let count = self.int()?;
        // Each text takes four bytes at least, so the count is bounded by the message.
        if count > 0 && count as usize > self.0.len() / 4 {
            return Err(Malformed);
        }
        (0..count).map(|_| self.text()).collect()
    }
}
