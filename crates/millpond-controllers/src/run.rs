//! Starting and stopping all controllers together.

use std::sync::Arc;

use kube::Client;
use millpond_providers::Provider;
use millpond_runtime::meta::Key;
use millpond_runtime::queue::{Lane, Queue};
use millpond_runtime::worker::{self, Reconcile};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::advice::Advisor;
use crate::buffers::Buffers;
use crate::capi::autoscale::{Shrinker, Tender};
use crate::claims::Claims;
use crate::classes::Classes;
use crate::cluster::{Cluster, Options};
use crate::collect::Collector;
use crate::context::Context;
use crate::disruption::{Disruptor, Hashes, Marks};
use crate::interrupt;
use crate::metrics;
use crate::overlays::Overlays;
use crate::pools::Pools;
use crate::provision::{Nominations, Provisioner};
use crate::repair::Repair;
use crate::static_pools::StaticPools;

/// Workers for claims mostly wait: for providers, for writes, for the scheduler to hear of nominations. With fewer of them
/// new claims would not be launched while others register. Writes at a time are limited elsewhere.
const CLAIMS_AT_A_TIME: usize = 1024;
/// Claims whose marks are looked at, at a time.
const MARKS_AT_A_TIME: usize = 64;
/// Pods whose nomination is looked at, at a time.
const NOMINATIONS_AT_A_TIME: usize = 16;
/// Pools, classes, buffers and overlays that are looked at, at a time.
const POOLS_AT_A_TIME: usize = 4;

/// Controllers that run.
pub struct Controllers {
    context: Arc<Context>,
    tracker: TaskTracker,
}

impl Controllers {
    /// Starts all of them; they act once everything was listed. They stop with the token.
    pub fn start(
        client: Client,
        options: Options,
        providers: impl IntoIterator<Item = Arc<dyn Provider>>,
        stop: &CancellationToken,
    ) -> Self {
        let (cluster, events) = Cluster::new(client, options);
        let context = Context::new(Arc::clone(&cluster), providers);
        let controllers = Self { context: Arc::clone(&context), tracker: TaskTracker::new() };
        controllers.when_ready(Advisor::new(Arc::clone(&context)).run(stop.clone()), stop);
        if !context.cluster.options.advise {
            controllers.act(stop);
        }
        controllers.tracker.spawn(events.run(stop.clone()));
        cluster.watch(&controllers.tracker, stop);
        controllers.tracker.close();
        controllers
    }

    /// Starts all that changes nodes and pods.
    fn act(&self, stop: &CancellationToken) {
        let (controllers, context) = (self, Arc::clone(&self.context));
        let queue = Arc::new(Queue::new());
        let claims = Arc::new(Claims::listen(&context, &queue));
        let launches =
            worker::run_lane(Arc::clone(&claims), Arc::clone(&queue), Lane::Urgent, CLAIMS_AT_A_TIME, stop.clone());
        controllers.when_ready_on(&context.cluster.urgent_threads(), launches, stop);
        controllers.when_ready(worker::run(claims, queue, CLAIMS_AT_A_TIME, stop.clone()), stop);
        let queue = Arc::new(Queue::new());
        controllers.work(Nominations::listen(&context, &queue), queue, NOMINATIONS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        Pools::listen(&context, &queue);
        controllers.work(Pools::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        Classes::listen(&context, &queue);
        controllers.work(Classes::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        Repair::listen(&context, &queue);
        controllers.work(Repair::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        controllers.work(Marks::listen(&context, &queue), queue, MARKS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        controllers.work(Hashes::listen(&context, &queue), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        controllers.work(StaticPools::listen(&context, &queue), queue, POOLS_AT_A_TIME, stop);
        controllers.when_ready(Disruptor::new(Arc::clone(&context)).run(stop.clone()), stop);
        let queue = Arc::new(Queue::new());
        Buffers::listen(&context, &queue);
        controllers.work(Buffers::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        Overlays::listen(&context, &queue);
        controllers.work(Overlays::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        metrics::listen(&context);
        controllers.when_ready(Collector::new(Arc::clone(&context)).run(stop.clone()), stop);
        for provider in context.providers() {
            if let Some(news) = provider.events() {
                let heed = interrupt::run(Arc::clone(&context), Arc::clone(provider), news, stop.clone());
                controllers.when_ready(heed, stop);
            }
        }
        controllers.when_ready(Tender::new(Arc::clone(&context)).run(stop.clone()), stop);
        controllers.when_ready(Shrinker::new(Arc::clone(&context)).run(stop.clone()), stop);
        let threads = context.cluster.urgent_threads();
        controllers.when_ready_on(&threads, Provisioner::new(context).run(stop.clone()), stop);
    }

    /// What they act with.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What they count and see, as of now: for whoever serves `/metrics`.
    pub fn metrics(&self) -> prometheus_client::registry::Registry {
        metrics::registry(&self.context)
    }

    fn work<R: Reconcile>(&self, reconciler: R, queue: Arc<Queue<Key>>, at_a_time: usize, stop: &CancellationToken) {
        self.when_ready(worker::run(Arc::new(reconciler), queue, at_a_time, stop.clone()), stop);
    }

    /// Starts a task once everything was listed, unless it is stopped before.
    fn when_ready(&self, task: impl Future<Output = ()> + Send + 'static, stop: &CancellationToken) {
        self.when_ready_on(&Handle::current(), task, stop);
    }

    /// The same, on threads of its own.
    fn when_ready_on(
        &self,
        threads: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
        stop: &CancellationToken,
    ) {
        let (context, stop) = (Arc::clone(&self.context), stop.clone());
        let task = async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = context.cluster.wait_until_ready() => {}
            }
            // Before the first of them does anything.
            context.endings.inherit(context.cluster.claims.list().iter().map(|claim| &**claim));
            task.await;
        };
        self.tracker.spawn_on(task, threads);
    }

    /// Waits until all have ended.
    pub async fn ended(&self) {
        self.tracker.wait().await;
    }
}
