//! Helpers of the checks: requests, retries, futures that are dropped.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use millpond_api::karpenter::{Taint, TaintEffect, UNREGISTERED_TAINT};

use super::{End, Stage};
use crate::{Choice, Instance, LaunchRequest, Launched, OfferingKey, Provider, ProviderError};

/// How long the suite waits for a cloud to come to an end.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often it looks.
const LOOK: Duration = Duration::from_secs(1);
/// Await points of a call; more is no end.
const LIMIT_POINTS: usize = 10_000;

pub(super) type Checked<T = ()> = Result<T, End>;

pub(super) fn broken<T>(how: impl Display) -> Checked<T> {
    Err(End::Broken(how.to_string()))
}

pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { broken(otherwise()) }
}

/// A request of its own for a check.
pub(super) fn request(stage: &dyn Stage, word: &str) -> LaunchRequest {
    let class = stage.class();
    let name = format!("{}-{word}", class.metadata.name);
    LaunchRequest {
        token: format!("token-of-{name}"),
        claim: name,
        class,
        choices: stage.choices(),
        labels: [("conformance".to_owned(), word.to_owned())].into(),
        annotations: Default::default(),
        taints: vec![Taint {
            key: UNREGISTERED_TAINT.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoExecute,
        }],
    }
}

pub(super) fn offerings(choices: &[Choice]) -> Vec<OfferingKey> {
    choices.iter().map(|choice| choice.offering.clone()).collect()
}

/// Repeats a call while the cloud fails to respond.
pub(super) async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, ProviderError>
where
    F: Future<Output = Result<T, ProviderError>>,
{
    let start = tokio::time::Instant::now();
    loop {
        match ask().await {
            Err(ProviderError::Throttled { retry_after, .. }) if start.elapsed() < PATIENCE => {
                tokio::time::sleep(retry_after.unwrap_or(LOOK)).await;
            }
            Err(ProviderError::Other { .. }) if start.elapsed() < PATIENCE => tokio::time::sleep(LOOK).await,
            answer => return answer,
        }
    }
}

/// A launch that must succeed.
pub(super) async fn launch(provider: &dyn Provider, request: &LaunchRequest) -> Checked<Launched> {
    match patiently(|| provider.create(request)).await {
        Ok(launched) => Ok(launched),
        Err(error) => broken(format!("create: {} ({error})", error.reason())),
    }
}

pub(super) async fn list(provider: &dyn Provider) -> Checked<Vec<Instance>> {
    patiently(|| provider.list()).await.or_else(|error| broken(format!("list: {error}")))
}

/// Waits until a condition holds, because a cloud may show changes late.
pub(super) async fn eventually<F>(what: &str, mut look: impl FnMut() -> F) -> Checked
where
    F: Future<Output = Checked<bool>>,
{
    let start = tokio::time::Instant::now();
    while !look().await? {
        if start.elapsed() >= PATIENCE {
            return broken(format!("after {} minutes not yet: {what}", PATIENCE.as_secs() / 60));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// The instances of a token that are listed.
pub(super) async fn of_token(provider: &dyn Provider, token: &str) -> Checked<Vec<Instance>> {
    Ok(list(provider).await?.into_iter().filter(|instance| instance.token == token).collect())
}

/// Asks for the end of an instance until it is gone.
pub(super) async fn end(provider: &dyn Provider, id: &str) -> Checked {
    let gone = || async {
        match patiently(|| provider.delete(id)).await {
            Ok(()) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => broken(format!("delete: {} ({error})", error.reason())),
        }
    };
    eventually("delete answers `NotFound`", gone).await
}

/// Drops a call at its first await point, another one at its second, and so on, until one comes to its end. Calls
/// `after` each time.
pub(super) async fn give_up_everywhere<T, F, A>(
    mut call: impl FnMut(usize) -> F,
    mut after: impl FnMut(usize) -> A,
) -> Checked<T>
where
    F: Future<Output = T>,
    A: Future<Output = Checked>,
{
    for point in 0..LIMIT_POINTS {
        let given_up = GiveUp { call: Box::pin(call(point)), points: point }.await;
        after(point).await?;
        if let Some(answer) = given_up {
            return Ok(answer);
        }
    }
    broken(format!("a call has more than {LIMIT_POINTS} await points"))
}

/// A future that is dropped after this many await points.
struct GiveUp<F> {
    call: Pin<Box<F>>,
    points: usize,
}

impl<F: Future> Future for GiveUp<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if self.points == 0 => Poll::Ready(None),
            Poll::Pending => {
                self.points -= 1;
                Poll::Pending
            }
        }
    }
}
