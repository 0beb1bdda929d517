//! Requests to the API server: few, small, and each given up after a while.

use std::time::Duration;

use http::Request;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The name under which the agent owns fields.
pub const MANAGER: &str = "millpond-agent";
/// Time limit of one response of the API server.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// A watch ends after this long and is begun anew, so that one that was cut silently is noticed.
const WATCH_SECONDS: u64 = 240;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The API server refused, or could not be reached.
    #[error("{}", message_of(.0))]
    Request(Box<kube::Error>),
    /// The API server did not answer.
    #[error("no answer within {} s", ANSWERED_WITHIN.as_secs())]
    Silent,
    /// The request cannot be written.
    #[error("cannot write the request: {0}")]
    Http(#[from] http::Error),
}

/// The server's message, or the error of the connection.
fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => crate::executor::describe(other),
    }
}

impl From<kube::Error> for SessionError {
    fn from(error: kube::Error) -> Self {
        Self::Request(Box::new(error))
    }
}

impl SessionError {
    /// The status code that the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Request(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// The server does not know the user (401).
    pub fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// The server knows the user, and refuses (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }
}

/// A connection to the API server under one identity.
#[derive(Clone)]
pub struct Session {
    client: Client,
}

impl Session {
    /// A session with the server and the user of a kubeconfig.
    pub async fn open(kubeconfig: &str) -> Result<Self, SessionError> {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(SessionError::Kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(SessionError::Kubeconfig)?;
        // The agent tries again by itself, and wants to know what was refused.
        config.default_retry = false;
        config.connect_timeout = Some(ANSWERED_WITHIN);
        Ok(Self { client: Client::try_from(config)? })
    }

    /// An object; `None` if it does not exist.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, SessionError> {
        match self.answer(Request::get(path).body(Vec::new())?).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object.
    pub async fn create<T: DeserializeOwned>(&self, path: &str, object: &Value) -> Result<T, SessionError> {
        let request = Request::post(format!("{path}?fieldManager={MANAGER}"));
        self.answer(request.header("Content-Type", "application/json").body(object.to_string().into_bytes())?).await
    }

    /// Says what the agent wants of an object, and of nothing else in it (server-side apply).
    pub async fn apply<T: DeserializeOwned>(&self, path: &str, object: &Value) -> Result<T, SessionError> {
        let request = Request::patch(format!("{path}?fieldManager={MANAGER}&force=true"));
        let request = request.header("Content-Type", "application/apply-patch+yaml");
        self.answer(request.body(object.to_string().into_bytes())?).await
    }

    /// Merges a patch into an object.
    pub async fn merge<T: DeserializeOwned>(&self, path: &str, patch: &Value) -> Result<T, SessionError> {
        let request = Request::patch(format!("{path}?fieldManager={MANAGER}"));
        let request = request.header("Content-Type", "application/merge-patch+json");
        self.answer(request.body(patch.to_string().into_bytes())?).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<T, SessionError> {
        let answer = tokio::time::timeout(ANSWERED_WITHIN, self.client.request(request));
        Ok(answer.await.map_err(|_| SessionError::Silent)??)
    }

    /// Events of one object, from a resource version on.
    pub async fn watch<T: Clone + DeserializeOwned>(
        &self,
        collection: &str,
        name: &str,
        version: &str,
    ) -> Result<impl futures::Stream<Item = kube::Result<WatchEvent<T>>> + use<T>, SessionError> {
        let uri = format!(
            "{collection}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}\
             &allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        );
        let answer = self.client.request_events(Request::get(uri).body(Vec::new())?);
        Ok(tokio::time::timeout(ANSWERED_WITHIN, answer).await.map_err(|_| SessionError::Silent)??)
    }
}
