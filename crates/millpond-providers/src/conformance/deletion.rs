//! Promises about the end of instances.

use super::tools::{
    Checked, broken, end, ensure, eventually, give_up_everywhere, launch, of_token, patiently, request,
};
use super::{End, Stage};
use crate::{InstanceState, ProviderError};

pub(super) async fn until_gone(stage: &dyn Stage) -> Checked {
    let request = request(stage, "until-gone");
    let provider = stage.provider();
    let instance = launch(&*provider, &request).await?.instance;
    if let Err(error) = patiently(|| provider.delete(&instance.id)).await {
        return broken(format!("the first wish: {} ({error})", error.reason()));
    }
    if let Ok(ending) = patiently(|| provider.get(&instance.id)).await {
        ensure(ending.state == InstanceState::Ending, || format!("it is {:?} after the first wish", ending.state))?;
    }
    end(&*provider, &instance.id).await?;
    eventually("get answers `NotFound`", || async {
        match patiently(|| provider.get(&instance.id)).await {
            Ok(_) => Ok(false),
            Err(error) => ensure(error.is_not_found(), || format!("get: {}", error.reason())).map(|()| true),
        }
    })
    .await?;
    eventually("it is not listed any more", || async { Ok(of_token(&*provider, &request.token).await?.is_empty()) })
        .await?;
    match patiently(|| provider.delete(&instance.id)).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => broken(format!("one more wish is answered with {other:?}")),
    }
}

pub(super) async fn unknown(stage: &dyn Stage) -> Checked {
    let provider = stage.provider();
    let request = request(stage, "unknown");
    let instance = launch(&*provider, &request).await?.instance;
    // One id that resembles the provider's own, and two that do not.
    for id in [format!("{}0", instance.id), "nonsense".to_owned(), String::new()] {
        match patiently(|| provider.delete(&id)).await {
            Err(error) if error.is_not_found() => {}
            other => return broken(format!("delete of `{id}`: {other:?}")),
        }
        match patiently(|| provider.get(&id)).await {
            Err(error) if error.is_not_found() => {}
            other => return broken(format!("get of `{id}`: {other:?}")),
        }
    }
    let still = patiently(|| provider.create(&request)).await;
    ensure(still.is_ok_and(|launched| launched.instance.id == instance.id), || {
        format!("{} is gone with them", instance.id)
    })
}

pub(super) async fn given_up(stage: &dyn Stage) -> Checked {
    let provider = stage.provider();
    let ids = std::sync::Mutex::new(Vec::new());
    let call = |point: usize| {
        let (provider, ids) = (&provider, &ids);
        async move {
            let instance = launch(&**provider, &request(stage, &format!("end-{point}"))).await?.instance;
            ids.lock().expect("no panic").push(instance.id.clone());
            let _ = provider.delete(&instance.id).await;
            Ok::<(), super::End>(())
        }
    };
    let after = |_| {
        let id = ids.lock().expect("no panic").last().cloned();
        async move {
            let provider = stage.restarted().await;
            match id {
                Some(id) => end(&*provider, &id).await,
                // Given up before there was something to end.
                None => Ok(()),
            }
        }
    };
    give_up_everywhere(call, after).await?
}

pub(super) async fn token_of_gone(stage: &dyn Stage) -> Checked {
    let request = request(stage, "gone");
    let provider = stage.provider();
    let instance = launch(&*provider, &request).await?.instance;
    end(&*provider, &instance.id).await?;
    for provider in [provider, stage.restarted().await] {
        match patiently(|| provider.create(&request)).await {
            Err(error) if error.is_not_found() => {}
            other => return broken(format!("it is answered with {other:?}")),
        }
    }
    Ok(())
}

pub(super) async fn older_term(stage: &dyn Stage) -> Checked {
    let request = request(stage, "older-term");
    {
        let (before, after) = (stage.provider(), stage.provider());
        before.begin_term(1).await.or_else(|error| broken(format!("a first term is refused: {error}")))?;
        after.begin_term(2).await.or_else(|error| broken(format!("a later term is refused: {error}")))?;
        if before.begin_term(1).await.is_ok() {
            return Err(End::Skipped("this provider does not remember terms".to_owned()));
        }
        match patiently(|| before.create(&request)).await {
            Err(ProviderError::Fenced { .. }) => {}
            other => return broken(format!("a launch of an older term: {other:?}")),
        }
        launch(&*after, &request).await?;
    }
    let restarted = stage.restarted().await;
    match restarted.begin_term(1).await {
        Err(ProviderError::Fenced { .. }) => Ok(()),
        other => broken(format!("an older term after a restart: {other:?}")),
    }
}
