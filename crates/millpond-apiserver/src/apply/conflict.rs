//! Why an apply was refused.

use http::StatusCode;

use super::path::PathElement;
use super::update::Clash;
use crate::status::{ApiError, Cause};

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The key by which upstream sorts managers.
    identifier: String,
    /// `"kubectl" using apps/v1`: how the manager is named.
    pub manager: String,
    /// The field.
    pub path: Vec<PathElement<'static>>,
}

impl Conflict {
    /// The field in the notation of messages.
    pub fn field(&self) -> String {
        self.path.iter().map(ToString::to_string).collect()
    }
}

/// An apply that was refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields with other values.
    #[error("{}", message(.0))]
    Conflicts(Vec<Conflict>),
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The object does not fit the schema; upstream responds with 500 and no reason.
    #[error("{0}")]
    Failed(String),
}

impl ApplyError {
    /// Conflicts in a fixed order: by manager, then by field.
    pub(super) fn conflicts(clashes: Vec<Clash>) -> Self {
        let mut conflicts = Vec::new();
        for clash in clashes {
            for path in clash.fields.paths() {
                conflicts.push(Conflict { identifier: clash.identifier.clone(), manager: clash.manager.clone(), path });
            }
        }
        conflicts.sort_by(|left, right| left.identifier.cmp(&right.identifier));
        Self::Conflicts(conflicts)
    }
}

fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field());
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.identifier) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.identifier);
        }
        lines.push(format!("- {}", conflict.field()));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let text = error.to_string();
        match error {
            ApplyError::BadRequest(_) => Self::bad_request(text),
            ApplyError::Failed(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", text),
            ApplyError::Conflicts(conflicts) => {
                let mut error = Self::new(StatusCode::CONFLICT, "Conflict", text);
                let cause = |conflict: &Conflict| Cause {
                    reason: "FieldManagerConflict",
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.field(),
                };
                error.details.get_or_insert_default().causes = conflicts.iter().map(cause).collect();
                error
            }
        }
    }
}
