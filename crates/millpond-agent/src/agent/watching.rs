//! Follows the own ByoHost: one object, by a watch that needs no right to list.

use std::time::Duration;

use futures::TryStreamExt as _;
use kube::core::WatchEvent;
use millpond_api::byoh::ByoHost;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::hosts;
use crate::heartbeat::Current;
use crate::session::SessionError;

/// Time to the next attempt after the first error, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A server ends watches itself; a connection that was cut silently is noticed after this long.
const SILENCE: Duration = Duration::from_secs(300);

/// Hands on every state of the host until the token is cancelled: `Some(None)` when it is gone, nothing before it was read.
pub(crate) async fn run(
    current: Current,
    namespace: String,
    name: String,
    seen: watch::Sender<Option<Option<ByoHost>>>,
    stop: CancellationToken,
) {
    let mut pause = RETRY.0;
    loop {
        let followed = tokio::select! {
            () = stop.cancelled() => return,
            followed = follow(&current, &namespace, &name, &seen) => followed,
        };
        match followed {
            Ok(()) => pause = RETRY.0,
            Err(error) => {
                if error.is_unauthorized() {
                    tracing::error!("the API server does not accept the certificate of this host");
                } else {
                    tracing::warn!(%error, "cannot watch the ByoHost");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = RETRY.1.min(pause * 2),
                }
            }
        }
    }
}

/// One watch to its end.
async fn follow(
    current: &Current,
    namespace: &str,
    name: &str,
    seen: &watch::Sender<Option<Option<ByoHost>>>,
) -> Result<(), SessionError> {
    let session = current.session();
    let collection = hosts(namespace);
    let host: Option<ByoHost> = session.get(&format!("{collection}/{name}")).await?;
    let version = host.as_ref().map_or_else(|| "0".to_owned(), |host| host.metadata.resource_version.clone());
    tell(seen, host);
    let events = session.watch::<ByoHost>(&collection, name, &version).await?;
    let mut events = std::pin::pin!(events);
    while let Ok(event) = tokio::time::timeout(SILENCE, events.try_next()).await {
        match event? {
            Some(WatchEvent::Added(host) | WatchEvent::Modified(host)) => tell(seen, Some(host)),
            Some(WatchEvent::Deleted(_)) => tell(seen, None),
            Some(WatchEvent::Bookmark(_)) => {}
            // The version is too old: the next watch begins with what is there now.
            Some(WatchEvent::Error(_)) | None => return Ok(()),
        }
    }
    Ok(())
}

fn tell(seen: &watch::Sender<Option<Option<ByoHost>>>, host: Option<ByoHost>) {
    if host.is_none() && !matches!(&*seen.borrow(), Some(None)) {
        tracing::warn!("the ByoHost is gone: the host is not registered any more; start the agent anew to register it");
    }
    seen.send_if_modified(|last| {
        let changed = last.as_ref() != Some(&host);
        *last = Some(host);
        changed
    });
}
