//! Good inputs, made worse.

use rand::RngExt as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

/// The largest input, and so the most that a run of one piece adds.
const LONGEST: usize = 1 << 16;

/// Pieces that mean something somewhere: in YAML, in JSON, or to a field.
const PIECES: &[&str] = &[
    "",
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e99",
    "0x10",
    "2147483648",
    "-9223372036854775809",
    "99999999999999999999",
    "9223372036854775807",
    "5Gi",
    "7Ei",
    "500m",
    "-5",
    "101%",
    "Never",
    "99999999h",
    "[]",
    "{}",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    ":",
    ": ",
    ",",
    "\n",
    "\n  ",
    "- ",
    "-",
    "&a ",
    "*a",
    "<<: *a",
    "|",
    ">",
    "? ",
    "!!binary ",
    "%YAML 1.3\n",
    "---\n",
    "...\n",
    "#",
    "\t",
    "\u{0}",
    "\u{feff}",
    "ü",
    "\u{1f300}",
    "\\ud800",
    "In",
    "Gt",
    "Exists",
    "metadata.name",
    "default",
    "kind: Pod\n",
    "items:\n",
    "name: web\n",
];

/// Changes some places of a text, mostly to pieces that mean something.
pub(crate) fn mutate(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=bytes.len());
        let end = (at + random.random_range(0..40)).min(bytes.len());
        let piece = PIECES.choose(random).expect("there are some").as_bytes();
        match random.random_range(0..8) {
            0..3 => drop(bytes.splice(at..end, piece.iter().copied())),
            3 => drop(bytes.drain(at..end)),
            // A piece of itself somewhere else: names twice, fields twice, lists in lists.
            4 => {
                let from = random.random_range(0..=bytes.len());
                let piece = bytes[from..(from + random.random_range(0..600)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            5 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.random()),
            6 if random.random_bool(0.1) => {
                let times = random.random_range(0..LONGEST) / piece.len().max(1);
                drop(bytes.splice(at..at, piece.repeat(times)));
            }
            _ => drop(bytes.splice(at..at, piece.iter().copied())),
        }
        bytes.truncate(LONGEST);
    }
}

/// Gives some lines of YAML another value, of another line or one that means something: most of the file stays good.
pub(crate) fn revalue(text: &str, random: &mut SmallRng) -> String {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    for _ in 0..random.random_range(1..5) {
        let other = lines.choose(random).and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned());
        let at = random.random_range(0..lines.len());
        let Some(end) = lines[at].find(": ") else { continue };
        let value = other.filter(|_| random.random_bool(0.3));
        let value = value.unwrap_or_else(|| (*PIECES.choose(random).expect("there are some")).to_owned());
        lines[at].truncate(end + 2);
        lines[at].push_str(&value);
    }
    lines.join("\n")
}

/// A text of letters from an alphabet, sometimes with one of them very often.
pub(crate) fn text(alphabet: &str, most: usize, random: &mut SmallRng) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut text: String =
        (0..random.random_range(0..=most)).map(|_| letters[random.random_range(0..letters.len())]).collect();
    if random.random_bool(0.02) {
        text.extend(std::iter::repeat_n(letters[random.random_range(0..letters.len())], LONGEST));
    }
    text
}
