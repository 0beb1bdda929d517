//! Errors between this client and vCenter, with the reason that a condition shows for each.

use std::fmt;

/// Why inventory data cannot be trusted: the reasons of the condition `InventoryFresh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// vCenter does not answer.
    VCenterUnreachable,
    /// vCenter refuses the account or its password.
    LoginFailed,
    /// The certificate of vCenter is not trusted.
    CertificateNotTrusted,
    /// The account may not read what is asked for.
    PermissionDenied,
    /// vCenter has lost the host of the chosen node.
    HostDisconnected,
    /// The chosen node has no virtual machine (any more).
    VMNotFound,
    /// vCenter answers in a way that leaves the inventory out of date.
    StaleInventory,
}

impl Reason {
    /// The reason as conditions hold it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VCenterUnreachable => "VCenterUnreachable",
            Self::LoginFailed => "LoginFailed",
            Self::CertificateNotTrusted => "CertificateNotTrusted",
            Self::PermissionDenied => "PermissionDenied",
            Self::HostDisconnected => "HostDisconnected",
            Self::VMNotFound => "VMNotFound",
            Self::StaleInventory => "StaleInventory",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A failed call. No variant holds a password or a session cookie.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection, or it broke.
    #[error("cannot reach vCenter at {address}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The error of the connection.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There was no response in time.
    #[error("vCenter at {address} did not answer {method} within {seconds} s")]
    Timeout {
        /// Host and port.
        address: String,
        /// The method.
        method: &'static str,
        /// How long the client waited.
        seconds: u64,
    },
    /// The certificate is not trusted.
    #[error("the certificate of vCenter at {address} is not trusted: {problem}")]
    Certificate {
        /// Host and port.
        address: String,
        /// The problem.
        problem: String,
    },
    /// vCenter refused the account.
    #[error("vCenter refused the login of `{user}`: {message}")]
    Login {
        /// The account.
        user: String,
        /// vCenter's message.
        message: String,
    },
    /// The client does not log in yet, to keep vCenter from locking the account.
    #[error("no login before {seconds} s have passed: {cause}")]
    LoginHeldBack {
        /// Seconds until the next attempt.
        seconds: u64,
        /// Why the client waits.
        cause: String,
    },
    /// The session ended, and with it all views and collectors.
    #[error("the session ended")]
    SessionEnded,
    /// The account may not do this.
    #[error("the account lacks the privilege {privilege} on {object}")]
    Permission {
        /// The object of the call.
        object: String,
        /// The missing privilege, as vCenter names it.
        privilege: String,
    },
    /// Any other fault.
    #[error("{method} failed with {kind}: {message}")]
    Fault {
        /// The method.
        method: &'static str,
        /// The type of the fault.
        kind: String,
        /// vCenter's message.
        message: String,
    },
    /// An HTTP status that is not SOAP's.
    #[error("{method} was answered with HTTP {status}")]
    Http {
        /// The method.
        method: &'static str,
        /// The status.
        status: u16,
    },
    /// An answer that is not SOAP, or lacks what it must have.
    #[error("the answer to {method} cannot be read: {problem}")]
    Malformed {
        /// The method.
        method: &'static str,
        /// The problem.
        problem: String,
    },
}

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The reason that a condition shows.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Http { .. } => Reason::VCenterUnreachable,
            Self::Certificate { .. } => Reason::CertificateNotTrusted,
            Self::Login { .. } | Self::LoginHeldBack { .. } => Reason::LoginFailed,
            Self::Permission { .. } => Reason::PermissionDenied,
            Self::SessionEnded | Self::Fault { .. } | Self::Malformed { .. } => Reason::StaleInventory,
        }
    }

    /// Whether a new session with new views cures it: the session expired, or an object that belonged to it is gone.
    pub fn ends_session(&self) -> bool {
        match self {
            Self::SessionEnded => true,
            Self::Fault { kind, .. } => matches!(
                kind.as_str(),
                "NotAuthenticated" | "ManagedObjectNotFound" | "InvalidCollectorVersion" | "RequestCanceled"
            ),
            _ => false,
        }
    }

    /// The whole chain of causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        text
    }
}
