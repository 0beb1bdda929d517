//! Events, in the stored form of the core group.

use serde_json::json;

use super::read::{integer, name, present, text};
use super::{NAME, or, plain, since, text as column, wide};
use crate::resource::{BuiltinColumns, ColumnDefinition};

pub(super) static EVENT: BuiltinColumns = plain(
    &[
        column("Last Seen", "Time since it last happened"),
        column("Type", "Normal or Warning"),
        column("Reason", "What happened, in one word"),
        column("Object", "Object that it happened to"),
        wide(column("Subobject", "Part of the object that it happened to")),
        wide(column("Source", "Who reports it, and from where")),
        column("Message", "What happened, in a sentence"),
        wide(column("First Seen", "Time since it first happened")),
        wide(column("Count", "How often it happened")),
        ColumnDefinition { priority: 1, ..NAME },
    ],
    |event, now| {
        let first = if present(event, "/firstTimestamp") { "/firstTimestamp" } else { "/eventTime" };
        let first = since(event, first, now);
        let last = if present(event, "/lastTimestamp") { since(event, "/lastTimestamp", now) } else { first.clone() };
        let (last, count) = if present(event, "/series") {
            (since(event, "/series/lastObservedTime", now), integer(event, "/series/count"))
        } else {
            // Events of the newer group that happened once have no count.
            (last, integer(event, "/count").max(i64::from(integer(event, "/count") == 0)))
        };
        let kind = text(event, "/involvedObject/kind").to_lowercase();
        let object = match text(event, "/involvedObject/name") {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        let component = or(text(event, "/source/component"), text(event, "/reportingComponent"));
        let source = match or(text(event, "/source/host"), text(event, "/reportingInstance")) {
            "" => component.to_owned(),
            instance => format!("{component}, {instance}"),
        };
        vec![
            json!(last),
            json!(text(event, "/type")),
            json!(text(event, "/reason")),
            json!(object),
            json!(text(event, "/involvedObject/fieldPath")),
            json!(source),
            json!(text(event, "/message").trim()),
            json!(first),
            json!(count),
            json!(name(event)),
        ]
    },
);
