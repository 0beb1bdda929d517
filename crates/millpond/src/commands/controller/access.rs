//! Authorizes the clients of a port: the API server authenticates their token and authorizes the path.
//!
//! This is what controller-runtime's metrics filter does: a TokenReview, then a SubjectAccessReview of the path.

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::{Client, Error};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Refused {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// Passes a request whose bearer token belongs to a user who may `get` the path.
pub(crate) async fn check(client: &Client, headers: &HeaderMap, path: &str) -> Result<(), Refused> {
    review(client, bearer(headers), "get", path).await
}

/// Passes a bearer token of a user who may use a verb on the path.
pub(crate) async fn review(client: &Client, token: Option<&str>, verb: &str, path: &str) -> Result<(), Refused> {
    let token =
        token.ok_or_else(|| Refused::new(StatusCode::UNAUTHORIZED, "a bearer token of this cluster is needed"))?;
    let review = TokenReview {
        spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let reviewed = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    let status = reviewed.map_err(|error| unavailable(&error))?.status.unwrap_or_default();
    let user = status.user.filter(|_| status.authenticated == Some(true));
    let user = user.ok_or_else(|| Refused::new(StatusCode::UNAUTHORIZED, "the token is not valid in this cluster"))?;
    let extra = user.extra.map(|extra| extra.into_iter().collect());
    let name = user.username.clone().unwrap_or_default();
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
    let spec = SubjectAccessReviewSpec {
        extra,
        groups: user.groups,
        non_resource_attributes: Some(attributes),
        uid: user.uid,
        user: user.username,
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviewed = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    if reviewed.map_err(|error| unavailable(&error))?.status.is_some_and(|status| status.allowed) {
        return Ok(());
    }
    Err(Refused::new(StatusCode::FORBIDDEN, format!("user \"{name}\" cannot {verb} path \"{path}\"")))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The client learns that the review failed. The cause goes to the log: it may name hosts and certificates.
fn unavailable(error: &Error) -> Refused {
    tracing::warn!(%error, "cannot review who reads /metrics");
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the API server could not review the token")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_counts() {
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(of("bearer  abc "), Some("abc".to_owned()));
        assert_eq!(of("Bearer "), None);
        assert_eq!(of("Basic abc"), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
