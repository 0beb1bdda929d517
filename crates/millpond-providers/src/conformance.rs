//! The contract of every provider, as checks.
//!
//! ```no_run
//! # use millpond_providers::conformance::{self, Stage};
//! # async fn my_provider_keeps_its_promises(make: impl AsyncFn() -> Box<dyn Stage>) {
//! let checks = conformance::run(make).await;
//! assert!(conformance::all_kept(&checks), "{}", conformance::report(&checks));
//! # }
//! ```
//!
//! A [`Stage`] says how to get at the provider and how to arrange what the checks need. Each check gets a stage of its
//! own; with a real cloud behind it, instances of earlier checks may still be there, and are left alone.
//!
//! Waiting is `tokio::time`: under paused time a cloud with minutes of delay passes in no time.

mod create;
mod deletion;
mod describe;
mod tools;

use std::sync::Arc;

use futures::future::BoxFuture;
use millpond_api::node_class::NodeClass;

use crate::{Choice, OfferingKey, Provider};

/// What the suite needs from its caller.
pub trait Stage: Send + Sync {
    /// The provider.
    fn provider(&self) -> Arc<dyn Provider>;

    /// A class that can be used, whose name is of this stage alone.
    fn class(&self) -> NodeClass;

    /// At least three available choices of the class, of different offerings.
    fn choices(&self) -> Vec<Choice>;

    /// Another provider on the same cloud, as after a crash of the process that had the first.
    fn restarted(&self) -> BoxFuture<'_, Arc<dyn Provider>>;

    /// Lets these offerings be out of stock from now on. False where that cannot be arranged.
    fn run_out<'a>(&'a self, offerings: &'a [OfferingKey]) -> BoxFuture<'a, bool>;

    /// The class changed so that its existing instances have drifted; `None` if that cannot be arranged.
    fn drifted_class(&self) -> Option<NodeClass>;
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The rule of the contract.
    pub name: &'static str,
    /// The result.
    pub outcome: Outcome,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider keeps the rule.
    Kept,
    /// The stage cannot test the rule; with the reason.
    Skipped(String),
    /// The provider breaks the rule; with details.
    Broken(String),
}

/// How a check ends without success.
pub(crate) enum End {
    Skipped(String),
    Broken(String),
}

type Run = for<'a> fn(&'a dyn Stage) -> BoxFuture<'a, Result<(), End>>;

/// All rules, in the order in which they are checked.
const CHECKS: &[(&str, Run)] = &[
    ("a launch gives an instance of the first choice, with token, claim and class", |stage| {
        Box::pin(create::first_choice(stage))
    }),
    ("a second launch with the same token gives the same instance", |stage| Box::pin(create::same_token(stage))),
    ("launches with one token at the same time give one instance", |stage| Box::pin(create::at_once(stage))),
    ("a token holds whatever the later request says", |stage| Box::pin(create::other_request(stage))),
    ("different tokens give different instances", |stage| Box::pin(create::different_tokens(stage))),
    ("a launch that is given up at any point leaves at most one instance, found again by its token", |stage| {
        Box::pin(create::given_up(stage))
    }),
    ("instances outlive the process that made them", |stage| Box::pin(create::restart(stage))),
    ("choices are tried in their order, and unavailable ones are named", |stage| Box::pin(create::in_order(stage))),
    ("when nothing is available, every choice is named", |stage| Box::pin(create::nothing_left(stage))),
    ("a launch without choices makes nothing", |stage| Box::pin(create::no_choices(stage))),
    ("an end can be asked for until the instance is gone", |stage| Box::pin(deletion::until_gone(stage))),
    ("the end of what was never there is `NotFound`", |stage| Box::pin(deletion::unknown(stage))),
    ("an end that is given up at any point can be asked for again", |stage| Box::pin(deletion::given_up(stage))),
    ("a token whose instance is gone makes no other one", |stage| Box::pin(deletion::token_of_gone(stage))),
    ("who led before is refused, also after a restart", |stage| Box::pin(deletion::older_term(stage))),
    ("get and list tell the same", |stage| Box::pin(describe::get_and_list(stage))),
    ("every instance is listed once", |stage| Box::pin(describe::listed_once(stage))),
    ("the catalogue has every offering that can be chosen", |stage| Box::pin(describe::catalog(stage))),
    ("the catalogue has types that are out of stock", |stage| Box::pin(describe::catalog_without_stock(stage))),
    ("an unknown catalogue is `NotReady`, with a hint", |stage| Box::pin(describe::unknown_catalog(stage))),
    ("a class of another provider is `NotReady`", |stage| Box::pin(describe::other_provider(stage))),
    ("a fresh instance has not drifted, and drifts when its class changes", |stage| Box::pin(describe::drift(stage))),
    ("repair policies name a condition, its status and a time", |stage| Box::pin(describe::repair_policies(stage))),
];

/// Checks all rules, each on a stage of its own.
pub async fn run<S: Stage>(make: impl AsyncFn() -> S) -> Vec<Check> {
    let mut checks = Vec::with_capacity(CHECKS.len());
    for (name, run) in CHECKS {
        let stage = make().await;
        let outcome = match run(&stage).await {
            Ok(()) => Outcome::Kept,
            Err(End::Skipped(why)) => Outcome::Skipped(why),
            Err(End::Broken(how)) => Outcome::Broken(how),
        };
        checks.push(Check { name, outcome });
    }
    checks
}

/// Whether the provider keeps all rules.
pub fn all_kept(checks: &[Check]) -> bool {
    !checks.iter().any(|check| matches!(check.outcome, Outcome::Broken(_)))
}

/// One line for each check.
pub fn report(checks: &[Check]) -> String {
    let line = |Check { name, outcome }: &Check| match outcome {
        Outcome::Kept => format!("kept     {name}\n"),
        Outcome::Skipped(why) => format!("skipped  {name}: {why}\n"),
        Outcome::Broken(how) => format!("BROKEN   {name}: {how}\n"),
    };
    checks.iter().map(line).collect()
}

impl<S: Stage + ?Sized> Stage for Box<S> {
    fn provider(&self) -> Arc<dyn Provider> {
        (**self).provider()
    }

    fn class(&self) -> NodeClass {
        (**self).class()
    }

    fn choices(&self) -> Vec<Choice> {
        (**self).choices()
    }

    fn restarted(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        (**self).restarted()
    }

    fn run_out<'a>(&'a self, offerings: &'a [OfferingKey]) -> BoxFuture<'a, bool> {
        (**self).run_out(offerings)
    }

    fn drifted_class(&self) -> Option<NodeClass> {
        (**self).drifted_class()
    }
}
