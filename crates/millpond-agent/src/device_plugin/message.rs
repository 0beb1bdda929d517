//! The messages of kubelet's device plugin API, `v1beta1`, in protobuf: the few fields that are used.

use std::collections::BTreeMap;

/// What the bytes of a message could not be read for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the message is malformed")]
pub(super) struct Malformed;

/// A message that is being written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// With one more text, or one more message inside. An empty one is left out, as everywhere in protobuf 3.
    fn with(mut self, field: u64, content: &[u8]) -> Self {
        if !content.is_empty() {
            self.push(field, content);
        }
        self
    }

    /// With one more element of a list, which may be empty.
    fn with_element(mut self, field: u64, element: &[u8]) -> Self {
        self.push(field, element);
        self
    }

    fn push(&mut self, field: u64, content: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(content.len() as u64);
        self.0.extend_from_slice(content);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// The bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The fields of a message that hold texts, lists or messages; numbers are skipped.
fn fields(bytes: &[u8]) -> Result<Vec<(u64, &[u8])>, Malformed> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        match tag & 7 {
            0 => drop(varint(&mut rest)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| Malformed)?;
                let (content, after) = rest.split_at_checked(length).ok_or(Malformed)?;
                found.push((tag >> 3, content));
                rest = after;
            }
            _ => return Err(Malformed),
        }
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

/// `RegisterRequest`: a plugin that serves a resource on a socket beside kubelet's.
pub(super) fn register(version: &str, endpoint: &str, resource: &str) -> Message {
    Message::default().with(1, version.as_bytes()).with(2, endpoint.as_bytes()).with(3, resource.as_bytes())
}

/// `ListAndWatchResponse`: devices by id, with their NUMA nodes.
pub(super) fn devices<'a>(devices: impl IntoIterator<Item = (&'a str, bool, Option<i64>)>) -> Message {
    devices.into_iter().fold(Message::default(), |list, (id, is_healthy, numa)| {
        let health = if is_healthy { "Healthy" } else { "Unhealthy" };
        let mut device = Message::default().with(1, id.as_bytes()).with(2, health.as_bytes());
        if let Some(node) = numa.and_then(|node| u64::try_from(node).ok()) {
            let mut number = Message::default();
            number.varint(1 << 3);
            number.varint(node);
            device = device.with_element(3, &Message::default().with_element(1, &number.0).0);
        }
        list.with_element(1, &device.0)
    })
}

/// The device ids of each container of an `AllocateRequest`.
pub(super) fn requested(bytes: &[u8]) -> Result<Vec<Vec<String>>, Malformed> {
    let texts = |container: &[u8]| -> Result<Vec<String>, Malformed> {
        let ids = fields(container)?.into_iter().filter(|(field, _)| *field == 1);
        ids.map(|(_, id)| String::from_utf8(id.to_vec()).map_err(|_| Malformed)).collect()
    };
    fields(bytes)?.into_iter().filter(|(field, _)| *field == 1).map(|(_, container)| texts(container)).collect()
}

/// What a container gets with its devices.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Allocation {
    /// Variables of its environment.
    pub(super) variables: BTreeMap<String, String>,
    /// Device files, by their path on the host and in the container.
    pub(super) files: Vec<String>,
}

/// `AllocateResponse`.
pub(super) fn allocated(containers: &[Allocation]) -> Message {
    containers.iter().fold(Message::default(), |list, allocation| {
        let mut container = Message::default();
        for (name, value) in &allocation.variables {
            container =
                container.with_element(1, &Message::default().with(1, name.as_bytes()).with(2, value.as_bytes()).0);
        }
        for path in &allocation.files {
            let file = Message::default().with(1, path.as_bytes()).with(2, path.as_bytes()).with(3, b"rw");
            container = container.with_element(3, &file.0);
        }
        list.with_element(1, &container.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_protobuf() {
        let bytes = register("v1beta1", "a.sock", "nvidia.com/gpu").into_bytes();
        assert_eq!(bytes, b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x0envidia.com/gpu");
        let bytes = devices([("a", true, Some(1)), ("b", false, None)]).into_bytes();
        assert_eq!(
            bytes,
            b"\x0a\x12\x0a\x01a\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01\x0a\x0e\x0a\x01b\x12\x09Unhealthy"
        );
        let variables = BTreeMap::from([("K".to_owned(), "v".to_owned())]);
        let allocation = Allocation { variables, files: vec!["/dev/x".to_owned()] };
        let bytes = allocated(&[allocation, Allocation::default()]).into_bytes();
        assert_eq!(bytes, b"\x0a\x1e\x0a\x06\x0a\x01K\x12\x01v\x1a\x14\x0a\x06/dev/x\x12\x06/dev/x\x1a\x02rw\x0a\x00");
    }

    #[test]
    fn requests_are_read_and_malformed_ones_are_refused() {
        let request = b"\x0a\x06\x0a\x01a\x0a\x01b\x0a\x00";
        assert_eq!(requested(request), Ok(vec![vec!["a".to_owned(), "b".to_owned()], Vec::new()]));
        assert_eq!(requested(b""), Ok(Vec::new()));
        // Fields of later versions are skipped, also numbers.
        assert_eq!(requested(b"\x10\x96\x01\x0a\x03\x0a\x01a"), Ok(vec![vec!["a".to_owned()]]));
        for malformed in [&b"\x0a\x05a"[..], b"\x0a", b"\x0d\x00", b"\x0a\x03\x0a\x01\xff", &[0xff; 11]] {
            assert_eq!(requested(malformed), Err(Malformed), "{malformed:?}");
        }
    }
}
