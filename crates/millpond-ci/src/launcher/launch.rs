//! The launch of one node by its driver: started, retried, failed, or without capacity.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::act::{Job, LaunchTarget, delete_instance, instance};
use super::backend::{Key, Write};
use super::run::{Context, Current, EndedLaunch, now};
use crate::config::{LabelDetails, Provider};
use crate::driver::{Driver, DriverError, Launch, LaunchImage, Launched};
use crate::model::{Node, NodeRequest, NodeState};

/// Who asks for nodes that are kept ready, in Nodepool's metrics.
const MIN_READY: &str = "NodePool:min-ready";
/// Between two attempts; doubles.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause between two attempts: `launch-retries` may be very large.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Starts the launch of a node whose record is locked.
pub(super) fn start(
    context: &Arc<Context>,
    current: &Current,
    place: LaunchTarget,
    id: String,
    record: Node,
    request: Option<(String, Arc<NodeRequest>)>,
) {
    let work = context.under_way.begin([Key::Node(id.clone())].into(), std::collections::BTreeMap::new());
    work.depends_on(Key::Node(id.clone()));
    let job = Job { context: Arc::clone(context), work, current: current.clone() };
    context.tasks.spawn(async move {
        let (cancelled, ends) = (job.work.cancelled.clone(), job.context.ends.clone());
        let key = Key::Node(id.clone());
        tokio::select! {
            () = job.launch(place, id, record, request) => {}
            // The record is unlocked then, and deleted with what was made for it.
            () = cancelled.cancelled() => job.unlock([&key]).await,
            () = ends.cancelled() => job.unlock([&key]).await,
        }
    });
}

impl Job {
    async fn launch(&self, place: LaunchTarget, id: String, record: Node, request: Option<(String, Arc<NodeRequest>)>) {
        let label = record.labels.first().cloned().unwrap_or_default();
        let provider = &place.provider.name;
        let driver = self.current.drivers.get(provider).and_then(|driver| driver.as_ref().ok()).cloned();
        let (Some(driver), Some(details)) = (driver, place.pool.labels.get(&label)) else { return };
        let launch = Launch {
            node_id: id.clone(),
            provider: provider.clone(),
            pool: Arc::clone(&place.pool),
            label: label.clone(),
            details: Arc::new(details.clone()),
            request,
            image: self.image(&place, &details.details),
        };
        let result = self.attempt(&*driver, &launch, &record, &place.provider).await;
        let requestor = launch.request.as_ref().map(|(_, request)| request.requestor.clone().unwrap_or_default());
        let counted = EndedLaunch {
            provider: provider.clone(),
            az: result.as_ref().ok().and_then(|launched| launched.az.clone()).unwrap_or_default(),
            requestor: requestor.unwrap_or_else(|| MIN_READY.to_owned()),
            error: result.as_ref().err().map(DriverError::kind),
        };
        *self.context.counters.lock().launches.entry(counted).or_default() += 1;
        match result {
            Ok(launched) => {
                self.context.capacity.lock().found(&place.id, &label);
                self.ready(&id, launched).await;
            }
            Err(error @ DriverError::Capacity(_)) => {
                tracing::warn!(node = id, label, provider, %error, "the provider has no capacity");
                self.context.capacity.lock().lacking(&place.id, &label, Instant::now());
                self.end(&id, NodeState::Aborted, true, &error).await;
            }
            Err(error) => {
                tracing::error!(node = id, label, provider, %error, "the node cannot be launched");
                if launch.request.is_none() {
                    // No request can decline the pool, so the label backs off.
                    self.context.capacity.lock().lacking(&place.id, &label, Instant::now());
                }
                // With a request the node stays locked until the request has declined the pool.
                self.end(&id, NodeState::Failed, launch.request.is_none(), &error).await;
            }
        }
    }

    async fn attempt(
        &self,
        driver: &dyn Driver,
        launch: &Launch,
        record: &Node,
        provider: &Provider,
    ) -> Result<Launched, DriverError> {
        let mut pause = RETRY;
        let mut attempt = 1;
        loop {
            match within(provider.launch_timeout_s(), driver.launch(launch)).await {
                Err(DriverError::Transient(error)) if attempt < provider.launch_retries => {
                    tracing::warn!(node = launch.node_id, attempt, error, "the launch failed; tries again");
                    delete_instance(driver, &instance(&launch.node_id, record)).await;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_RETRY);
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// The image that servers of a label boot from, if that is a disk image with a ready upload.
    fn image(&self, target: &LaunchTarget, label: &LabelDetails) -> Option<LaunchImage> {
        let LabelDetails::OpenStack(label) = label else { return None };
        let name = label.diskimage.as_ref()?;
        let uploads = self.context.uploads.lock().clone()?;
        let upload = uploads.get(&(name.clone(), target.provider.name.clone()))?.clone();
        let settings = self.current.config.diskimages.get(name)?;
        Some(LaunchImage {
            upload,
            username: settings.username.clone(),
            python_path: settings.python_path.clone(),
            shell_type: settings.shell_type.clone(),
        })
    }

    async fn ready(&self, id: &str, launched: Launched) {
        let Some(stored) = self.current(id).await else { return };
        let mut record = Node::clone(&stored.record);
        launched.write_to(&mut record);
        record.set_state(NodeState::Ready, now());
        tracing::info!(node = id, provider = record.provider, "the node is ready");
        // A node for a request is unlocked together with it.
        let unlock = record.allocated_to.is_none();
        self.write(id, stored.revision, record, unlock).await;
    }

    async fn end(&self, id: &str, state: NodeState, unlock: bool, why: &DriverError) {
        let Some(stored) = self.current(id).await else { return };
        let mut record = Node::clone(&stored.record);
        record.set_state(state, now());
        record.comment = Some(why.to_string());
        self.write(id, stored.revision, record, unlock).await;
    }

    async fn write(&self, id: &str, revision: u64, record: Node, unlock: bool) {
        let write = Write::Node { id: id.to_owned(), revision, record, unlock };
        self.commit_or_unlock(vec![write], &[Key::Node(id.to_owned())]).await;
    }
}

/// An attempt that takes longer than `launch-timeout` has failed. What it made is deleted before the next.
async fn within(
    limit_s: Option<u64>,
    launch: impl Future<Output = Result<Launched, DriverError>>,
) -> Result<Launched, DriverError> {
    let Some(limit_s) = limit_s else { return launch.await };
    let ended = tokio::time::timeout(Duration::from_secs(limit_s), launch).await;
    ended.unwrap_or_else(|_| {
        Err(DriverError::Transient(format!("the launch took longer than launch-timeout, {limit_s} s")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn launches_end_at_their_timeout() {
        let slow = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(Launched::default())
        };
        let error = within(Some(5), slow).await.unwrap_err();
        assert_eq!(error, DriverError::Transient("the launch took longer than launch-timeout, 5 s".to_owned()));
        assert!(within(Some(5), std::future::ready(Ok(Launched::default()))).await.is_ok());
        assert!(within(None, std::future::ready(Ok(Launched::default()))).await.is_ok());
    }
}
