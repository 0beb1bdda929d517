//! Promises about what a provider tells: instances, catalogues, drift, repair.

use std::collections::BTreeSet;

use super::tools::{Checked, broken, ensure, eventually, launch, list, offerings, patiently, request};
use super::{End, Stage};
use crate::{OfferingKey, ProviderError};

/// Instances of a listing.
const SOME: usize = 5;

pub(super) async fn get_and_list(stage: &dyn Stage) -> Checked {
    let request = request(stage, "agree");
    let provider = stage.provider();
    let made = launch(&*provider, &request).await?.instance;
    eventually("get and list both tell of the instance", || async {
        let listed = list(&*provider).await?.into_iter().find(|instance| instance.id == made.id);
        let got = match patiently(|| provider.get(&made.id)).await {
            Ok(got) => Some(got),
            Err(error) if error.is_not_found() => None,
            Err(error) => return broken(format!("get: {error}")),
        };
        let (Some(mut listed), Some(mut got)) = (listed, got) else { return Ok(false) };
        // It may have come up in between.
        listed.state = made.state;
        got.state = made.state;
        ensure(listed == got, || format!("list has {listed:?}, get has {got:?}"))?;
        ensure(got == made, || format!("create had {made:?}, get has {got:?}"))?;
        Ok(true)
    })
    .await
}

pub(super) async fn listed_once(stage: &dyn Stage) -> Checked {
    let provider = stage.provider();
    let mut made = BTreeSet::new();
    for index in 0..SOME {
        let request = request(stage, &format!("listed-{index}"));
        let id = launch(&*provider, &request).await?.instance.id;
        made.insert((id, request.token, request.claim, request.class.metadata.name));
    }
    eventually("all instances are listed with token, claim and class", || async {
        let all = list(&*provider).await?;
        let ids: BTreeSet<&str> = all.iter().map(|instance| instance.id.as_str()).collect();
        ensure(ids.len() == all.len(), || "an instance is listed twice".to_owned())?;
        let told = all.into_iter().map(|it| (it.id, it.token, it.claim, it.class));
        let told: BTreeSet<_> = told.collect();
        Ok(made.is_subset(&told))
    })
    .await
}

#[expect(clippy::unused_async, reason = "all rules have one form")]
pub(super) async fn catalog(stage: &dyn Stage) -> Checked {
    missing_from_catalog(stage, &offerings(&stage.choices()))
}

pub(super) async fn catalog_without_stock(stage: &dyn Stage) -> Checked {
    let all = offerings(&stage.choices());
    if !stage.run_out(&all).await {
        return Err(End::Skipped("this stage has no stock-outs".to_owned()));
    }
    // So that the provider has met it.
    let _ = patiently(|| async { stage.provider().create(&request(stage, "out-of-stock")).await }).await;
    missing_from_catalog(stage, &all)
}

fn missing_from_catalog(stage: &dyn Stage, wanted: &[OfferingKey]) -> Checked {
    let catalog = match stage.provider().catalog(&stage.class()) {
        Ok(catalog) => catalog,
        Err(error) => return broken(format!("the catalogue: {} ({error})", error.reason())),
    };
    let has = |key: &OfferingKey| {
        let of = catalog.find(&key.instance_type);
        of.is_some_and(|of| {
            let mut offerings = of.offerings.iter();
            offerings.any(|it| *it.zone == *key.zone && it.capacity_type.name() == key.capacity_type)
        })
    };
    let missing = wanted.iter().find(|key| !has(key));
    ensure(missing.is_none(), || format!("it lacks {}", missing.map_or_else(String::new, ToString::to_string)))
}

pub(super) async fn unknown_catalog(stage: &dyn Stage) -> Checked {
    let mut class = stage.class();
    let name = class.spec.catalog.clone().unwrap_or_else(|| "aws".to_owned());
    let wrong = format!("{name}x");
    class.spec.catalog = Some(wrong.clone());
    match stage.provider().catalog(&class) {
        Err(ProviderError::NotReady { message }) => {
            let quoted = |name: &str| message.contains(&format!("`{name}`"));
            ensure(quoted(&wrong) && quoted(&name), || format!("it names neither or one of them: {message}"))?;
        }
        Err(error) => return broken(format!("the error is {} ({error})", error.reason())),
        Ok(catalog) => return broken(format!("it is the catalogue `{}`", catalog.name)),
    }
    let launch = crate::LaunchRequest { class, ..request(stage, "unknown-catalog") };
    match patiently(|| async { stage.provider().create(&launch).await }).await {
        Err(ProviderError::NotReady { .. }) => Ok(()),
        other => broken(format!("a launch of such a class: {other:?}")),
    }
}

#[expect(clippy::unused_async, reason = "all rules have one form")]
pub(super) async fn other_provider(stage: &dyn Stage) -> Checked {
    let mut class = stage.class();
    class.spec.provider = Some("nobody".to_owned());
    match stage.provider().catalog(&class) {
        Err(ProviderError::NotReady { message }) => {
            ensure(message.contains("nobody"), || format!("it does not name the provider: {message}"))
        }
        Err(error) => broken(format!("the error is {} ({error})", error.reason())),
        Ok(_) => broken("it has a catalogue"),
    }
}

pub(super) async fn drift(stage: &dyn Stage) -> Checked {
    let provider = stage.provider();
    let instance = launch(&*provider, &request(stage, "drift")).await?.instance;
    let class = stage.class();
    match patiently(|| provider.drifted(&instance, &class)).await {
        Ok(None) => {}
        other => return broken(format!("fresh, it is answered with {other:?}")),
    }
    let Some(changed) = stage.drifted_class() else {
        return Err(End::Skipped("this stage has no drift".to_owned()));
    };
    match patiently(|| provider.drifted(&instance, &changed)).await {
        Ok(Some(reason)) => {
            let word = !reason.is_empty() && reason.chars().all(char::is_alphanumeric);
            ensure(word, || format!("the reason `{reason}` is not one word"))
        }
        other => broken(format!("under the changed class it is answered with {other:?}")),
    }
}

#[expect(clippy::unused_async, reason = "all rules have one form")]
pub(super) async fn repair_policies(stage: &dyn Stage) -> Checked {
    for policy in stage.provider().repair_policies() {
        let status = ["True", "False", "Unknown"].contains(&policy.status.as_str());
        ensure(!policy.condition.is_empty() && status && !policy.toleration.is_zero(), || format!("{policy:?}"))?;
    }
    Ok(())
}
