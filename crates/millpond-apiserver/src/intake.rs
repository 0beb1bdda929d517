//! Limits on requests: bodies that are being received, and requests that are being answered.
//!
//! A body is received before its request takes a place among those in flight, so that unfinished bodies hold up
//! nothing but themselves. Clients inside this process have places of their own. Health endpoints need none.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::server::Origin;
use crate::status::ApiError;

/// Limit on the requests of one user whose bodies are being received.
const MAX_BODIES_PER_USER: usize = 1024;
/// The same of all users. One user takes an eighth of it.
const MAX_BODIES: usize = 8192;
/// Bytes of unfinished bodies of one user that are held in memory: twenty of the largest.
const MAX_BODY_BYTES_PER_USER: usize = 64 << 20;
/// The same of all users.
const MAX_BODY_BYTES: usize = 512 << 20;

/// Counts bodies and requests.
#[derive(Debug)]
pub(crate) struct Intake {
    outside: Semaphore,
    in_process: Semaphore,
    receiving: Mutex<Receiving>,
}

#[derive(Debug, Default)]
struct Receiving {
    total: Held,
    per_user: HashMap<Box<str>, Held>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Held {
    bodies: usize,
    bytes: usize,
}

impl Held {
    fn exceeds(&self, bodies: usize, bytes: usize) -> bool {
        self.bodies > bodies || self.bytes > bytes
    }
}

impl Intake {
    pub(crate) fn new(outside: usize, in_process: usize) -> Self {
        Self { outside: Semaphore::new(outside), in_process: Semaphore::new(in_process), receiving: Mutex::default() }
    }

    /// A place among the requests in flight. A watch holds it only until it has started.
    pub(crate) async fn permit(&self, origin: Origin) -> Result<SemaphorePermit<'_>, ApiError> {
        match origin {
            Origin::Connection => self.outside.try_acquire().map_err(|_| too_many()),
            Origin::InProcess => self.in_process.acquire().await.map_err(ApiError::internal),
        }
    }

    /// A user begins to send a body.
    pub(crate) fn receive(&self, user: &str) -> Result<ReceivedBody<'_>, ApiError> {
        let mut body = ReceivedBody { intake: self, user: user.into(), held: Held::default() };
        body.hold(Held { bodies: 1, bytes: 0 })?;
        Ok(body)
    }
}

/// A body that is being received; it is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ReceivedBody<'a> {
    intake: &'a Intake,
    user: Box<str>,
    held: Held,
}

impl ReceivedBody<'_> {
    /// More of it has come.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.hold(Held { bodies: 0, bytes })
    }

    /// Counts more. What was refused is counted, too, until the body is dropped.
    fn hold(&mut self, more: Held) -> Result<(), ApiError> {
        self.held = plus(self.held, more);
        let mut receiving = self.intake.receiving.lock();
        receiving.total = plus(receiving.total, more);
        let over = receiving.total.exceeds(MAX_BODIES, MAX_BODY_BYTES);
        let user = receiving.per_user.entry(self.user.clone()).or_default();
        *user = plus(*user, more);
        if over || user.exceeds(MAX_BODIES_PER_USER, MAX_BODY_BYTES_PER_USER) { Err(too_many()) } else { Ok(()) }
    }
}

impl Drop for ReceivedBody<'_> {
    fn drop(&mut self) {
        let mut receiving = self.intake.receiving.lock();
        receiving.total = minus(receiving.total, self.held);
        if let Some(user) = receiving.per_user.get_mut(&self.user) {
            *user = minus(*user, self.held);
            if user.bodies == 0 {
                receiving.per_user.remove(&self.user);
            }
        }
    }
}

fn plus(held: Held, more: Held) -> Held {
    Held { bodies: held.bodies + more.bodies, bytes: held.bytes + more.bytes }
}

fn minus(held: Held, less: Held) -> Held {
    Held { bodies: held.bodies - less.bodies, bytes: held.bytes - less.bytes }
}

fn too_many() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_all_that_is_kept_for_bodies() {
        let intake = Intake::new(1, 1);
        let mut bodies: Vec<_> = (0..MAX_BODIES_PER_USER).map(|_| intake.receive("greedy").unwrap()).collect();
        assert_eq!(intake.receive("greedy").unwrap_err().code, 429);
        assert!(intake.receive("other").is_ok());
        bodies[0].add(MAX_BODY_BYTES_PER_USER).unwrap();
        assert_eq!(bodies[1].add(1).unwrap_err().code, 429);
        assert!(intake.receive("other").unwrap().add(1).is_ok());
        drop(bodies);
        intake.receive("greedy").unwrap().add(1).unwrap();
        let receiving = intake.receiving.lock();
        assert_eq!((receiving.total.bodies, receiving.total.bytes, receiving.per_user.len()), (0, 0, 0));
    }
}
