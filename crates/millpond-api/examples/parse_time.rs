//! How large the shipped catalogues are and how long they take to parse:
//! `cargo run --release -p millpond-api --example parse_time`.

use std::hint::black_box;
use std::time::Instant;

use millpond_api::catalog::{built_in, text};

const ROUNDS: u32 = 20;

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() {
    for name in ["aws", "gcp"] {
        let catalog = built_in(name).expect("it is built in");
        let data = text::encode(catalog);
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(text::parse(name, black_box(&data)).expect("it parses"));
        }
        let each = start.elapsed() / ROUNDS;
        let offerings: usize = catalog.types.iter().map(|of| of.offerings.len()).sum();
        println!("{name}: {} bytes, {} types, {offerings} offerings, {each:?}", data.len(), catalog.types.len());
    }
}
