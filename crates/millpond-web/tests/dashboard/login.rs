//! Who is let in, and what every answer says.

use std::time::Duration;

use serde_json::json;

use crate::stage::{HOST, Stage, TOKEN};

const SESSION: &str = "/ui/api/v1/session";

#[tokio::test(start_paused = true)]
async fn without_a_session_nothing_is_shown_but_the_page() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    for path in [
        "/me",
        "/overview",
        "/pools",
        "/pools/karpenter/-/general",
        "/nodes",
        "/nodes/a",
        "/pending",
        "/pending/g1",
        "/decisions",
        "/decisions/d-1",
        "/decisions/d-1/snapshot",
        "/cost",
        "/health",
        "/catalog",
        "/hosts",
        "/gpus",
        "/ci/nodes",
        "/forecast",
        "/stream",
        "/nothing",
    ] {
        let path = format!("/ui/api/v1{path}");
        assert_eq!(stage.ask("GET", &path, &[], "").await.problem().0, 401, "{path}");
        let wrong = stage.ask("GET", &path, &[("authorization", "Bearer wrong")], "").await;
        assert_eq!(wrong.problem().0, 401, "{path}");
        let as_cookie = stage.ask("GET", &path, &[("cookie", &format!("session={session}"))], "").await;
        assert_eq!(as_cookie.problem().0, 401, "{path}");
    }
    for path in ["/what-if", "/what-if/w-1/apply", "/actions", "/code"] {
        let answer = stage.post(&format!("/ui/api/v1{path}"), None, &json!({})).await;
        assert_eq!(answer.problem().0, 401, "{path}");
    }
    for path in ["/", "/nodes", "/decisions/d-5", "/assets/index.html", "/healthz"] {
        assert_eq!(stage.ask("GET", path, &[], "").await.status, 200, "{path}");
    }
    assert_eq!(stage.ask("GET", "/assets/none.js", &[], "").await.status, 404);
    assert_eq!(stage.ask("POST", "/", &[], "").await.status, 405);
}

#[tokio::test(start_paused = true)]
async fn every_answer_has_the_policy_and_none_sets_a_cookie() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let bearer = format!("Bearer {session}");
    let asked: [(&str, &[(&str, &str)]); 6] = [
        ("/", &[]),
        ("/assets/index.html", &[]),
        ("/assets/none", &[]),
        ("/ui/api/v1/overview", &[("authorization", &bearer)]),
        ("/ui/api/v1/overview", &[]),
        ("/", &[("host", "evil.example:6480")]),
    ];
    for (path, headers) in asked {
        let answer = stage.ask("GET", path, headers, "").await;
        let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!((header("x-content-type-options"), header("referrer-policy")), ("nosniff", "no-referrer"));
        assert_eq!(header("cross-origin-opener-policy"), "same-origin");
        assert!(answer.headers.get("set-cookie").is_none());
        assert!(answer.headers.get("access-control-allow-origin").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn other_names_and_other_origins_are_refused() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let bearer = format!("Bearer {session}");
    let status = async |headers: &[(&str, &str)]| {
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        stage.ask("GET", "/ui/api/v1/overview", &all, "").await.status.as_u16()
    };
    assert_eq!(status(&[]).await, 200);
    assert_eq!(status(&[("host", "localhost:6480")]).await, 200);
    for host in ["evil.example", "evil.example:6480", "127.0.0.1", "127.0.0.1:6443", ""] {
        assert_eq!(status(&[("host", host)]).await, 421, "{host}");
    }
    assert_eq!(status(&[("origin", &format!("http://{HOST}"))]).await, 200);
    assert_eq!(status(&[("sec-fetch-site", "same-origin"), ("origin", &format!("http://{HOST}"))]).await, 200);
    for origin in ["http://evil.example", "http://127.0.0.1:8000", "null", "https://127.0.0.1"] {
        assert_eq!(status(&[("origin", origin)]).await, 403, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(status(&[("sec-fetch-site", site)]).await, 403, "{site}");
    }
    // A code is not used up by a page of another origin.
    let code = stage.post("/ui/api/v1/code", Some(&session), &json!({})).await.json()["code"].clone();
    let body = json!({ "code": code }).to_string();
    let foreign = stage.ask("POST", SESSION, &[("origin", "http://evil.example")], &body).await;
    assert_eq!(foreign.problem().0, 403);
    assert_eq!(stage.ask("POST", SESSION, &[], &body).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_code_is_good_once_and_for_ten_minutes() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let code = async || {
        let answer = stage.post("/ui/api/v1/code", Some(&session), &json!({})).await;
        let url = answer.json()["url"].as_str().unwrap().to_owned();
        assert!(url.starts_with(&format!("http://{HOST}/#code=")), "in the fragment, which is never sent: {url}");
        answer.json()["code"].as_str().unwrap().to_owned()
    };
    let redeem = async |code: &str| stage.post(SESSION, None, &json!({ "code": code })).await;
    let first = code().await;
    let answer = redeem(&first).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["user"]["name"]), (201, &json!("admin")));
    assert!(redeem(&first).await.problem().2.starts_with("this code was used already"));
    let late = code().await;
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(redeem(&late).await.problem().0, 401);
    assert_eq!(stage.post(SESSION, None, &json!({ "token": "another token" })).await.problem().0, 401);
    assert_eq!(stage.post(SESSION, None, &json!({ "token": TOKEN })).await.status, 201);
    assert_eq!(stage.post("/ui/api/v1/code", Some(TOKEN), &json!({})).await.status, 201);
    assert_eq!(stage.post(SESSION, None, &json!({})).await.problem().0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_it_is_idle_old_or_ended() {
    let stage = Stage::new().await;
    let idle = stage.admin().await;
    tokio::time::advance(Duration::from_mins(59)).await;
    assert_eq!(stage.get("/me", &idle).await.status, 200);
    tokio::time::advance(Duration::from_mins(61)).await;
    assert_eq!(stage.get("/me", &idle).await.problem().0, 401);
    let old = stage.admin().await;
    for _ in 0..14 {
        tokio::time::advance(Duration::from_mins(50)).await;
        assert_eq!(stage.get("/me", &old).await.status, 200);
    }
    tokio::time::advance(Duration::from_mins(50)).await;
    assert_eq!(stage.get("/me", &old).await.problem().0, 401, "twelve hours are over");
    let ended = stage.admin().await;
    let bearer = format!("Bearer {ended}");
    assert_eq!(stage.ask("DELETE", SESSION, &[("authorization", &bearer)], "").await.status, 204);
    assert_eq!(stage.get("/me", &ended).await.problem().0, 401);
}

#[tokio::test(start_paused = true)]
async fn files_have_types_and_tags() {
    let stage = Stage::new().await;
    let page = stage.ask("GET", "/", &[], "").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    let tag = page.headers["etag"].to_str().unwrap();
    let again = stage.ask("GET", "/", &[("if-none-match", tag)], "").await;
    assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""));
    assert_eq!(stage.ask("GET", "/", &[("if-none-match", "\"another\"")], "").await.status, 200);
    assert_eq!(stage.ask("HEAD", "/", &[], "").await.text, "");
}
