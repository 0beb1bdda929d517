//! Has the linker keep one copy of what is the same, code as well as constants, where it knows how.
//!
//! Generic code is compiled for each type and in each crate, and much of it comes out equal. The linker that Rust brings
//! along for x86-64 Linux (LLD) folds it; the one of a bare GNU system does not know the option and would fail. So it is
//! asked with a program of one line.
//!
//! Two functions may then have one address. Rust promises no other, and nothing here tells functions apart by it.
#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

use std::env;
use std::path::PathBuf;
use std::process::Command;

const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Who builds without optimization waits for the linker, not for the size.
    if env::var("OPT_LEVEL").is_ok_and(|level| level != "0") && links_with(FOLD) {
        println!("cargo::rustc-link-arg-bins={FOLD}");
    }
}

/// Whether the linker takes an option.
fn links_with(option: &str) -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let directory = PathBuf::from(variable("OUT_DIR"));
    let source = directory.join("probe.rs");
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.arg(&source).arg("--out-dir").arg(&directory).args(["-C", &format!("link-arg={option}")]);
    if variable("TARGET") != variable("HOST") {
        compiler.args(["--target", &variable("TARGET")]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.args(["-C", &format!("linker={linker}")]);
    }
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    compiler.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    compiler.output().is_ok_and(|output| output.status.success())
}
