//! Errors of a controller's requests to its API server.

use crate::meta::Key;

/// A failed write. Reads come from memory and do not fail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or could not be reached.
    #[error("could not {verb} {kind} `{key}`")]
    Api {
        /// The operation.
        verb: &'static str,
        /// The kind of the object.
        kind: String,
        /// On which object.
        key: Key,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The object cannot be handled as it is.
    #[error("{kind} `{key}`: {problem}")]
    Malformed {
        /// The kind.
        kind: &'static str,
        /// The object.
        key: Key,
        /// The problem.
        problem: String,
    },
}

/// The result of a step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The status that the API server returned, if any.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Self::Malformed { .. } => None,
        }
    }

    /// The error of the server or the client, without the operation.
    pub fn cause(&self) -> String {
        use std::error::Error as _;
        match self.status() {
            Some(status) => status.message.clone(),
            None => self.source().map_or_else(|| self.to_string(), ToString::to_string),
        }
    }

    /// The object is not there (any more).
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_not_found)
    }

    /// An object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_already_exists)
    }

    /// Another writer was first, or the object with that name has another uid now.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_conflict)
    }

    /// The API server will not have it, however often it is tried.
    pub fn is_refusal(&self) -> bool {
        self.status().is_some_and(|status| status.is_forbidden() || status.is_invalid())
    }

    /// Whether this happens in healthy clusters and needs no log line.
    pub fn is_expected(&self) -> bool {
        self.is_not_found() || self.is_conflict() || self.is_already_exists()
    }
}
