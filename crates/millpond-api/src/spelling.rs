//! "Did you mean": the known name nearest to an unknown one.

/// Words longer than this, in bytes, are not misspellings; a file without line breaks may be one word.
const LONGEST: usize = 253;

/// The candidate most like a misspelt word, unless all are quite different: more than every third letter. Case does
/// not matter; of equals the first by name.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    let length = word.chars().count();
    let allowed = (length / 3).max(1);
    // Most of a long list is out by its length alone.
    let close = |candidate: &&str| candidate.chars().count().abs_diff(length) <= allowed;
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word, &candidate.to_lowercase());
    let scored = candidates.into_iter().filter(close).map(|candidate| (distance(candidate), candidate));
    scored.filter(|(distance, _)| *distance <= allowed).min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_recognised() {
        let kinds = ["Node", "NodePool", "NodeClaim", "NodeClass", "Pod"];
        assert_eq!(nearest("NodePol", kinds), Some("NodePool"));
        assert_eq!(nearest("nodepool", kinds), Some("NodePool"));
        assert_eq!(nearest("NodeClain", kinds), Some("NodeClaim"));
        assert_eq!(nearest("Pdo", kinds), Some("Pod"));
    }

    #[test]
    fn other_words_are_not() {
        assert_eq!(nearest("Deployment", ["Node", "Pod"]), None);
        assert_eq!(nearest("", ["Node", "Pod"]), None);
        assert_eq!(nearest("x", []), None);
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }

    #[test]
    fn of_equals_the_first_by_name() {
        assert_eq!(nearest("m5.larg", ["m5.largz", "m5.larga"]), Some("m5.larga"));
    }
}
