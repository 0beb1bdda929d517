//! The dashboard's modules in a real browser, without Millpond behind them: what they compute, and that the page's
//! policy refuses none of them.

mod files;

use std::path::Path;

use anyhow::{Context as _, Result};
use millpond_testkit::Browser;
use serde_json::Value;

use self::files::Files;

/// Where the page lies in the tree.
fn assets() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../millpond-web/assets")
}

fn checks() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser_page")
}

#[test]
#[ignore = "needs Chromium"]
fn browser_runs_the_checks_of_the_modules() -> Result<()> {
    let server = Files::serve(&[("/assets/", &assets()), ("/checks/", &checks())])?;
    let browser = Browser::start(1200, 800)?;
    browser.open(&server.address("/checks/index.html"))?;
    let report = browser.until("globalThis.report")?;
    let failed: Vec<&Value> =
        report.as_array().context("read the report")?.iter().filter(|it| it["error"].is_string()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let count = report.as_array().map_or(0, Vec::len);
    assert!(count >= 30, "only {count} checks ran");
    assert_eq!(browser.console_errors()?, [""; 0]);
    Ok(())
}

#[test]
#[ignore = "needs Chromium"]
fn browser_loads_the_page_under_its_policy_and_asks_for_a_login() -> Result<()> {
    let server = Files::serve(&[("/assets/", &assets())])?;
    for dark in [false, true] {
        let browser = Browser::start(1200, 800)?;
        browser.set_dark(dark)?;
        browser.open(&server.address("/"))?;
        browser.until("document.querySelector('#proof') !== null")?;
        assert!(browser.text("main")?.contains("millpond dashboard"));
        assert_eq!(browser.console_errors()?, [""; 0]);
    }
    Ok(())
}

#[test]
#[ignore = "needs Chromium"]
fn browser_reports_what_the_policy_refuses() -> Result<()> {
    let server = Files::serve(&[("/assets/", &assets())])?;
    let browser = Browser::start(1200, 800)?;
    browser.open(&server.address("/"))?;
    browser.until("document.querySelector('#proof') !== null")?;
    browser.run("const style = document.createElement('style'); style.textContent = 'p { color: red }'; document.head.append(style);", &[])?;
    let errors = browser.console_errors()?;
    assert!(errors.iter().any(|error| error.contains("Content Security Policy")), "{errors:?}");
    Ok(())
}
