//! Promises about launches.

use futures::future::join_all;

use super::tools::{
    Checked, broken, ensure, eventually, give_up_everywhere, launch, of_token, offerings, patiently, request,
};
use super::{End, Stage};
use crate::{LaunchRequest, Provider, ProviderError};

/// Launches that come at once.
const AT_ONCE: usize = 8;

pub(super) async fn first_choice(stage: &dyn Stage) -> Checked {
    let request = request(stage, "first");
    let provider = stage.provider();
    let launched = launch(&*provider, &request).await?;
    let instance = launched.instance;
    let choice = &request.choices[0];
    ensure(instance.offering == choice.offering, || format!("it is {}, not {}", instance.offering, choice.offering))?;
    ensure(launched.unavailable.is_empty(), || format!("unavailable: {:?}", launched.unavailable))?;
    let told = [&instance.token, &instance.claim, &instance.class];
    let asked = [&request.token, &request.claim, &request.class.metadata.name];
    ensure(told == asked, || format!("token, claim and class are {told:?}, not {asked:?}"))?;
    ensure(!instance.id.is_empty(), || "it has no provider id".to_owned())?;
    ensure(!instance.image.is_empty(), || "it has no image".to_owned())?;
    let labels = choice.labels();
    let missing = labels.iter().find(|(key, value)| instance.labels.get(*key) != Some(*value));
    ensure(missing.is_none(), || format!("its labels lack {missing:?}"))?;
    let amounts = [&instance.capacity, &instance.allocatable];
    ensure(amounts == [&choice.shape.capacity, &choice.shape.allocatable], || {
        format!("capacity and allocatable are {amounts:?}, not as chosen")
    })
}

pub(super) async fn same_token(stage: &dyn Stage) -> Checked {
    let request = request(stage, "same");
    let provider = stage.provider();
    let first = launch(&*provider, &request).await?.instance;
    let second = launch(&*provider, &request).await?.instance;
    ensure(first.id == second.id, || format!("two instances: {} and {}", first.id, second.id))?;
    one_instance(&*provider, &request).await
}

pub(super) async fn at_once(stage: &dyn Stage) -> Checked {
    let request = request(stage, "at-once");
    let (one, other) = (stage.provider(), stage.restarted().await);
    // Of two processes that both believe that they lead.
    let launches = (0..AT_ONCE).map(|index| {
        let provider = if index % 2 == 0 { &one } else { &other };
        launch(&**provider, &request)
    });
    let mut ids = Vec::new();
    for launched in join_all(launches).await {
        ids.push(launched?.instance.id);
    }
    ensure(ids.iter().all(|id| *id == ids[0]), || format!("several instances: {ids:?}"))?;
    one_instance(&*one, &request).await
}

pub(super) async fn other_request(stage: &dyn Stage) -> Checked {
    let request = request(stage, "other");
    let provider = stage.provider();
    let first = launch(&*provider, &request).await?.instance;
    let choices: Vec<_> = request.choices.iter().skip(1).cloned().collect();
    let changed = LaunchRequest { choices, ..request.clone() };
    let second = launch(&*provider, &changed).await?;
    ensure(second.instance.id == first.id && second.instance.offering == first.offering, || {
        format!("{} became {}", first.offering, second.instance.offering)
    })?;
    let nothing = LaunchRequest { choices: Vec::new(), ..request.clone() };
    let third = launch(&*provider, &nothing).await?.instance;
    ensure(third.id == first.id, || format!("two instances: {} and {}", first.id, third.id))?;
    one_instance(&*provider, &request).await
}

pub(super) async fn different_tokens(stage: &dyn Stage) -> Checked {
    let provider = stage.provider();
    let one = launch(&*provider, &request(stage, "one")).await?.instance;
    let two = launch(&*provider, &request(stage, "two")).await?.instance;
    ensure(one.id != two.id, || format!("both are {}", one.id))
}

pub(super) async fn given_up(stage: &dyn Stage) -> Checked {
    let requests = |point: usize| request(stage, &format!("given-up-{point}"));
    let call = |point: usize| async move { stage.provider().create(&requests(point)).await };
    // The process is gone, and with it all that it knew.
    let after = |point: usize| async move {
        let (request, provider) = (requests(point), stage.restarted().await);
        let found = of_token(&*provider, &request.token).await?;
        ensure(found.len() <= 1, || format!("given up at await point {point}: {} instances", found.len()))?;
        let adopted = launch(&*provider, &request).await?.instance;
        ensure(found.iter().all(|instance| instance.id == adopted.id), || {
            format!("given up at await point {point}: {} was there, and {} was made", found[0].id, adopted.id)
        })?;
        one_instance(&*provider, &request).await
    };
    give_up_everywhere(call, after).await.map(drop)
}

pub(super) async fn restart(stage: &dyn Stage) -> Checked {
    let request = request(stage, "restart");
    let before = launch(&*stage.provider(), &request).await?.instance;
    let provider = stage.restarted().await;
    eventually("the instance is listed after a restart", || async {
        Ok(of_token(&*provider, &request.token).await?.iter().any(|instance| instance.id == before.id))
    })
    .await?;
    let again = launch(&*provider, &request).await?.instance;
    ensure(again.id == before.id, || format!("{} became {}", before.id, again.id))?;
    ensure(again.claim == before.claim && again.offering == before.offering, || format!("it changed: {again:?}"))
}

pub(super) async fn in_order(stage: &dyn Stage) -> Checked {
    let request = request(stage, "in-order");
    let all = offerings(&request.choices);
    let out = &all[..2];
    if !stage.run_out(out).await {
        return Err(End::Skipped("this stage has no stock-outs".to_owned()));
    }
    let (provider, mut calls) = (stage.provider(), 0);
    let create = || {
        calls += 1;
        provider.create(&request)
    };
    let launched = patiently(create).await.or_else(|error| broken(format!("create: {error}")))?;
    ensure(launched.instance.offering == all[2], || format!("it is {}, not {}", launched.instance.offering, all[2]))?;
    // An answer that was lost took the names with it.
    let lost = calls > 1 && launched.unavailable.is_empty();
    ensure(lost || launched.unavailable == out, || format!("unavailable are {:?}, not {out:?}", launched.unavailable))
}

pub(super) async fn nothing_left(stage: &dyn Stage) -> Checked {
    let request = request(stage, "nothing");
    let all = offerings(&request.choices);
    if !stage.run_out(&all).await {
        return Err(End::Skipped("this stage has no stock-outs".to_owned()));
    }
    let provider = stage.provider();
    match patiently(|| provider.create(&request)).await {
        Err(ProviderError::CapacityUnavailable { offerings, message }) => {
            ensure(offerings == all, || format!("it names {offerings:?}, not {all:?}"))?;
            ensure(!message.is_empty(), || "it says nothing in words".to_owned())?;
        }
        Err(error) => return broken(format!("the error is {} ({error})", error.reason())),
        Ok(launched) => return broken(format!("{} was available", launched.instance.offering)),
    }
    let found = of_token(&*provider, &request.token).await?;
    ensure(found.is_empty(), || format!("and yet there is {}", found[0].id))
}

pub(super) async fn no_choices(stage: &dyn Stage) -> Checked {
    let request = LaunchRequest { choices: Vec::new(), ..request(stage, "no-choices") };
    let provider = stage.provider();
    match patiently(|| provider.create(&request)).await {
        Err(ProviderError::CapacityUnavailable { offerings, .. }) if offerings.is_empty() => {}
        Err(error) => return broken(format!("the error is {} with {:?}", error.reason(), error.offerings())),
        Ok(launched) => return broken(format!("it made {}", launched.instance.offering)),
    }
    let found = of_token(&*provider, &request.token).await?;
    ensure(found.is_empty(), || format!("and yet there is {}", found[0].id))
}

/// In the end exactly one instance of the token is listed.
async fn one_instance(provider: &dyn Provider, request: &LaunchRequest) -> Checked {
    eventually("the instance is listed", || async {
        let found = of_token(provider, &request.token).await?;
        ensure(found.len() <= 1, || format!("{} instances of one token are listed", found.len()))?;
        Ok(found.len() == 1)
    })
    .await
}
