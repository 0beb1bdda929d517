//! Starts and stops all controllers together.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
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
use crate::capi::autoscale::{GroupMaintenance, ScaleDown};
use crate::claims::Claims;
use crate::classes::Classes;
use crate::cluster::{Cluster, Options};
use crate::context::Context;
use crate::decisions;
use crate::disruption::{ClaimConditions, Disruptor, Hashes};
use crate::garbage_collection::GarbageCollector;
use crate::interrupt;
use crate::metrics;
use crate::overlays::Overlays;
use crate::pools::Pools;
use crate::provided::Provided;
use crate::provision::{Nominator, Provisioner};
use crate::repair::Repair;
use crate::standings::StandingsLoop;
use crate::static_pools::StaticPools;

/// Workers for claims mostly wait: for providers, for writes, for nominations to be observed. With fewer of them new
/// claims would not be launched while others register. Concurrent writes are limited elsewhere.
const CLAIMS_AT_A_TIME: usize = 1024;
/// Claims whose marks are looked at, at a time.
const CLAIM_CONDITIONS_AT_A_TIME: usize = 64;
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
        let provided = Provided::listen(&context);
        controllers.run_loop("catalogues of providers", provided, stop, |it, stop| it.run(stop).boxed());
        controllers.run_loop("advisor", Advisor::new(Arc::clone(&context)), stop, |it, stop| it.run(stop).boxed());
        if !context.cluster.options.advise {
            controllers.act(stop);
        }
        let (supervisor, stopped) = (cluster.supervisor.clone(), stop.clone());
        controllers.tracker.spawn(async move {
            let start = restartable(events, &stopped, |it, stop| it.send_all(stop).boxed());
            supervisor.run("events", &stopped, start).await;
        });
        cluster.watch(&controllers.tracker, stop);
        controllers.tracker.close();
        controllers
    }

    /// Starts all that changes nodes and pods.
    fn act(&self, stop: &CancellationToken) {
        let (controllers, context) = (self, Arc::clone(&self.context));
        let urgent = context.cluster.urgent_threads();
        let queue = Arc::new(Queue::new());
        let claims = Arc::new(Claims::listen(&context, &queue));
        controllers.work_on(&urgent, Lane::Urgent, &claims, &queue, CLAIMS_AT_A_TIME, stop);
        controllers.work_on(&Handle::current(), Lane::Usual, &claims, &queue, CLAIMS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        controllers.work(Nominator::listen(&context, &queue), queue, NOMINATIONS_AT_A_TIME, stop);
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
        controllers.work(ClaimConditions::listen(&context, &queue), queue, CLAIM_CONDITIONS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        controllers.work(Hashes::listen(&context, &queue), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        controllers.work(StaticPools::listen(&context, &queue), queue, POOLS_AT_A_TIME, stop);
        controllers
            .run_loop("pools' standings", StandingsLoop::listen(&context), stop, |it, stop| it.run(stop).boxed());
        controllers.run_loop("disruption", Disruptor::new(Arc::clone(&context)), stop, |it, stop| it.run(stop).boxed());
        let queue = Arc::new(Queue::new());
        Buffers::listen(&context, &queue);
        controllers.work(Buffers::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        let queue = Arc::new(Queue::new());
        Overlays::listen(&context, &queue);
        controllers.work(Overlays::new(Arc::clone(&context)), queue, POOLS_AT_A_TIME, stop);
        metrics::listen(&context);
        decisions::listen(&context);
        let collector = GarbageCollector::new(Arc::clone(&context));
        controllers.run_loop("garbage collection", collector, stop, |it, stop| it.run(stop).boxed());
        for provider in context.providers() {
            if let Some(events) = provider.events() {
                let (context, provider) = (Arc::clone(&context), Arc::clone(provider));
                let (events, stopped) = (Arc::new(tokio::sync::Mutex::new(events)), stop.clone());
                let start = move || {
                    let (context, provider) = (Arc::clone(&context), Arc::clone(&provider));
                    interrupt::run(context, provider, Arc::clone(&events), stopped.clone()).boxed()
                };
                controllers.supervise(&Handle::current(), "interruption", stop, start);
            }
        }
        let (grow, shrink) = (GroupMaintenance::new(Arc::clone(&context)), ScaleDown::new(Arc::clone(&context)));
        controllers.run_loop("node groups: scale up", grow, stop, |it, stop| it.run(stop).boxed());
        controllers.run_loop("node groups: scale down", shrink, stop, |it, stop| it.run(stop).boxed());
        let start = restartable(Provisioner::new(context), stop, |it, stop| it.run(stop).boxed());
        controllers.supervise(&urgent, "provisioner", stop, start);
    }

    /// What they act with.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What they count and see, as of now: for the server of `/metrics`.
    pub fn metrics(&self) -> prometheus_client::registry::Registry {
        metrics::registry(&self.context)
    }

    fn work<R: Reconcile>(&self, reconciler: R, queue: Arc<Queue<Key>>, at_a_time: usize, stop: &CancellationToken) {
        self.work_on(&Handle::current(), Lane::Usual, &Arc::new(reconciler), &queue, at_a_time, stop);
    }

    fn work_on<R: Reconcile>(
        &self,
        threads: &Handle,
        lane: Lane,
        reconciler: &Arc<R>,
        queue: &Arc<Queue<Key>>,
        at_a_time: usize,
        stop: &CancellationToken,
    ) {
        if lane == Lane::Usual {
            self.context.cluster.supervisor.watch(R::NAME, queue);
        }
        let (reconciler, queue, stopped) = (Arc::clone(reconciler), Arc::clone(queue), stop.clone());
        let start = move || {
            worker::run_lane(Arc::clone(&reconciler), Arc::clone(&queue), lane, at_a_time, stopped.clone()).boxed()
        };
        self.supervise(threads, R::NAME, stop, start);
    }

    fn run_loop<T: Send + 'static>(
        &self,
        name: &'static str,
        subject: T,
        stop: &CancellationToken,
        run: for<'t> fn(&'t mut T, CancellationToken) -> BoxFuture<'t, ()>,
    ) {
        self.supervise(&Handle::current(), name, stop, restartable(subject, stop, run));
    }

    /// Starts a loop once everything was listed, unless it is stopped before; starts it again if it panics.
    fn supervise(
        &self,
        threads: &Handle,
        name: &'static str,
        stop: &CancellationToken,
        start: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        let (context, stop) = (Arc::clone(&self.context), stop.clone());
        let task = async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = context.cluster.wait_until_ready() => {}
            }
            // Before the first of them does anything.
            context.terminations.inherit(context.cluster.claims.list().iter().map(|claim| &**claim));
            context.cluster.supervisor.run(name, &stop, start).await;
        };
        self.tracker.spawn_on(task, threads);
    }

    /// Ends when a loop has panicked so often that the process should end; gives its name and its last panic.
    pub async fn failed(&self) -> (&'static str, String) {
        self.context.cluster.supervisor.failed().await
    }

    /// Waits until all have ended.
    pub async fn ended(&self) {
        self.tracker.wait().await;
    }
}

/// A loop that goes on with what it knows when it is started again.
fn restartable<T: Send + 'static>(
    subject: T,
    stop: &CancellationToken,
    run: for<'t> fn(&'t mut T, CancellationToken) -> BoxFuture<'t, ()>,
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + 'static {
    let (subject, stop) = (Arc::new(tokio::sync::Mutex::new(subject)), stop.clone());
    move || {
        let (subject, stop) = (Arc::clone(&subject), stop.clone());
        async move { run(&mut *subject.lock().await, stop).await }.boxed()
    }
}
