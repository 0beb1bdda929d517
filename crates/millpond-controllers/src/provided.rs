//! Catalogues that providers report themselves: a stock of own hosts changes while the controllers run.
//!
//! Every change is read once, and becomes part of the planner's index; what has not changed wakes nothing.

use std::sync::Arc;
use std::time::Duration;

use millpond_providers::ProviderError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, api_class};
use crate::kinds::NodeClass;

/// Changes within this time are handled together.
const GATHER: Duration = Duration::from_millis(10);
/// A provider that does not know its catalogue yet is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Reads the catalogues of providers.
pub(crate) struct Provided {
    context: Arc<Context>,
    changed: Arc<Notify>,
}

impl Provided {
    /// Notified by changes of NodeClasses.
    pub(crate) fn listen(context: &Arc<Context>) -> Self {
        let changed = Arc::new(Notify::new());
        let (own, weak) = (Arc::clone(&changed), Arc::downgrade(context));
        context.cluster.classes.on_change(move |before, after| {
            if let (Some(class), None) = (before, after)
                && let Some(context) = weak.upgrade()
            {
                context.cluster.provide(class.name(), None);
            }
            own.notify_one();
        });
        Self { context: Arc::clone(context), changed }
    }

    /// Reads catalogues again and again until the token is cancelled.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        let mut changes: Vec<_> = self.context.providers().filter_map(|provider| provider.catalog_changes()).collect();
        if changes.is_empty() {
            return stop.cancelled().await;
        }
        loop {
            changes.iter_mut().for_each(tokio::sync::watch::Receiver::mark_unchanged);
            let again = self.read();
            let any = futures::future::select_all(changes.iter_mut().map(|one| Box::pin(one.changed())));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                (result, ..) = any => if result.is_err() { return stop.cancelled().await },
                () = tokio::time::sleep(AGAIN), if again => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Reads all of them; tells whether a provider could not answer yet.
    fn read(&self) -> bool {
        let mut again = false;
        for class in self.context.cluster.classes.list() {
            again |= self.read_of(&class);
        }
        again
    }

    fn read_of(&self, class: &NodeClass) -> bool {
        let Ok(provider) = self.context.provider(class) else { return false };
        if provider.catalog_changes().is_none() {
            return false;
        }
        let catalog = match provider.catalog(&api_class(class)) {
            Ok(catalog) => Some(catalog),
            // The previous catalogue stays in use.
            Err(ProviderError::Other { .. }) => return true,
            Err(_) => None,
        };
        self.context.cluster.provide(class.name(), catalog);
        false
    }
}
