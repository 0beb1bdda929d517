//! Reading anything, and what must hold whatever it was.

use std::sync::{Arc, LazyLock};

use millpond_api::catalog::{Catalog, built_in};
use millpond_state::{Diagnostic, Options, Reader, Reading, Severity, Taken};

/// Noon of some day.
pub(crate) const NOW: i64 = 1_794_830_400;

/// The most diagnostics of one severity.
const DIAGNOSTICS: usize = 100;
/// The longest message: a place, an object, a field, a text that is cut, a problem.
const MESSAGE: usize = 2_000;

/// Families of the examples: a plan over all of EC2 takes longer and shows no more.
static SMALL: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
    let mut catalog = built_in("aws").expect("it comes with the crate").clone();
    let families = ["m7i.", "c7i.", "r7i.", "c6g.", "g5.", "p4d.", "t3."];
    catalog.types.retain(|of| families.iter().any(|family| of.name.starts_with(family)));
    Arc::new(catalog)
});

/// All that options can add, over a few types.
pub(crate) fn options(default_pool: bool) -> Options {
    let catalogs = vec![SMALL.clone()];
    Options { catalog: Some(SMALL.clone()), catalogs, default_pool, expand_workloads: true, ..Options::default() }
}

/// Reads a file of that name and takes a snapshot.
pub(crate) fn read(file: &str, bytes: &[u8]) -> (Reading, Taken) {
    let mut reader = Reader::new();
    reader.add(file, bytes);
    let reading = reader.finish();
    said_well(file, bytes, &reading);
    bounded(bytes.len(), &reading);
    let taken = reading.state.snapshot(NOW, &options(false));
    let classes = taken.snapshot.classes.len();
    assert!(taken.snapshot.pods.iter().all(|pod| pod.class.index() < classes));
    assert!(taken.notes.iter().all(|note| note.to_string().len() < MESSAGE));
    (reading, taken)
}

/// What is wrong is told with a place of the file, in a few words.
fn said_well(file: &str, bytes: &[u8], reading: &Reading) {
    assert!(reading.errors.len() <= DIAGNOSTICS && reading.warnings.len() <= DIAGNOSTICS);
    assert!(reading.errors.iter().all(|error| error.severity == Severity::Error));
    for diagnostic in reading.errors.iter().chain(&reading.warnings) {
        assert_eq!(diagnostic.file, file);
        assert!(in_file(bytes, diagnostic), "{diagnostic} is not in {:?}", String::from_utf8_lossy(bytes));
        let words = diagnostic.to_string();
        assert!(words.len() < MESSAGE, "{words}");
        assert!(words.starts_with(&format!("{file}:{}:{}: ", diagnostic.line, diagnostic.column)), "{words}");
    }
}

/// Whether a file has such a line and column; the end of the text and of a line count.
fn in_file(bytes: &[u8], diagnostic: &Diagnostic) -> bool {
    let (line, column) = (diagnostic.line as usize, diagnostic.column as usize);
    let text = String::from_utf8_lossy(bytes);
    // YAML ends lines at a carriage return as well.
    let lines = text.matches(['\n', '\r']).count() + 1;
    let longest = text.split('\n').map(|line| line.chars().count()).max().unwrap_or(0);
    (1..=lines + 1).contains(&line) && (1..=longest + 2).contains(&column)
}

/// Every object, and every pod of a list of pods, takes some bytes of the input.
fn bounded(bytes: usize, reading: &Reading) {
    assert!(reading.objects <= bytes, "{} objects of {bytes} bytes", reading.objects);
    assert!(reading.state.pods() <= bytes, "{} pods of {bytes} bytes", reading.state.pods());
    assert!(reading.errors.len() + reading.warnings.len() + reading.more <= 2 * bytes + 2);
}
