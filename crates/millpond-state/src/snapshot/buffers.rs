//! Placeholder pods for the capacity that CapacityBuffers keep free.

use millpond_plan::model::{Pod, PodState};

use super::SnapshotBuilder;
use super::pods::Classes;
use super::workloads::LIMIT_INVENTED;
use crate::state::is_active;

/// Prefix of the names of buffer pods.
const PREFIX: &str = "capacity-buffer-";

/// The name of one of the pods of a buffer.
fn pod_name(buffer: &str, number: u32) -> Box<str> {
    format!("{PREFIX}{buffer}-{number}").into()
}

/// The buffer that a pod of such a name belongs to; only pods of buffers may be asked for.
pub fn buffer_of(pod: &str) -> Option<&str> {
    pod.strip_prefix(PREFIX)?.rsplit_once('-').map(|(buffer, _)| buffer)
}

impl SnapshotBuilder<'_> {
    /// Adds the pods of each buffer.
    pub(super) fn buffers(&mut self, classes: &mut Classes) {
        let state = self.state;
        let mut left = LIMIT_INVENTED;
        for (namespace, buffers) in &state.buffers {
            for (name, (buffer, origin)) in buffers.iter().filter(|(_, (buffer, _))| is_active(buffer)) {
                let purpose = match state.purpose(namespace, buffer) {
                    Ok(purpose) => purpose,
                    Err(why) => {
                        self.warn(
                            origin.as_ref(),
                            format!("capacity buffer `{namespace}/{name}` keeps no room: {why}"),
                        );
                        continue;
                    }
                };
                let wanted = state.size(namespace, buffer, &purpose);
                let count = wanted.min(left);
                if count < wanted {
                    let message = format!("more than {LIMIT_INVENTED} pods of capacity buffers; the rest is left out");
                    self.warn(origin.as_ref(), message);
                }
                left -= count;
                if count == 0 {
                    continue;
                }
                let (content, shape) = state.made_from(namespace, purpose.template);
                let plain = self.plain_class(content, &shape, classes);
                let class = self.snapshot.classes[plain.index()].clone().into_buffer();
                let class = self.intern(class, classes);
                let created = buffer.metadata.creation_timestamp.map_or(0, |time| time.0);
                self.snapshot.pods.extend((1..=count).map(|number| Pod {
                    name: pod_name(name, number),
                    class,
                    node: None,
                    state: PodState::Pending,
                    created,
                    started: None,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_name_their_buffer() {
        for buffer in ["web", "web-1", "capacity-buffer-x-2"] {
            assert_eq!(buffer_of(&pod_name(buffer, 12)), Some(buffer));
        }
        assert_eq!(buffer_of("web-1"), None);
    }
}
