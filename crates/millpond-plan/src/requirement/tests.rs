//! The algebra against its meaning: what a requirement allows, value by value.

use proptest::prelude::*;

use super::*;

/// Values that occur in the tests: texts, numbers, and numbers in odd spellings.
const VALUES: [&str; 9] = ["a", "b", "c", "-1", "0", "1", "2", "3", "07"];

fn table() -> Symbols {
    let mut symbols = Symbols::new();
    VALUES.iter().for_each(|value| _ = symbols.intern(value));
    symbols
}

fn parsed(operator: Operator, values: &[&str], symbols: &mut Symbols) -> Requirement {
    Requirement::parse(operator, values.iter().copied(), symbols).unwrap()
}

/// What a requirement means, written down without the algebra.
fn means(operator: Operator, values: &[&str], label: Option<&str>) -> bool {
    let compare = |test: fn(i64, i64) -> bool| {
        label.and_then(|label| label.parse().ok()).is_some_and(|label| test(label, values[0].parse().unwrap()))
    };
    match operator {
        Operator::In => label.is_some_and(|label| values.contains(&label)),
        Operator::NotIn => label.is_none_or(|label| !values.contains(&label)),
        Operator::Exists => label.is_some(),
        Operator::DoesNotExist => label.is_none(),
        Operator::Gt => compare(|label, value| label > value),
        Operator::Lt => compare(|label, value| label < value),
        Operator::Gte => compare(|label, value| label >= value),
        Operator::Lte => compare(|label, value| label <= value),
    }
}

fn any_term() -> impl Strategy<Value = (Operator, Vec<&'static str>)> {
    let some_values = proptest::sample::subsequence(VALUES.to_vec(), 1..4);
    let number = proptest::sample::select(vec!["-1", "0", "1", "2", "3"]);
    prop_oneof![
        (prop_oneof![Just(Operator::In), Just(Operator::NotIn)], some_values),
        prop_oneof![Just(Operator::Exists), Just(Operator::DoesNotExist)].prop_map(|operator| (operator, vec![])),
        (
            prop_oneof![Just(Operator::Gt), Just(Operator::Lt), Just(Operator::Gte), Just(Operator::Lte)],
            number.prop_map(|number| vec![number])
        ),
    ]
}

fn labels() -> impl Iterator<Item = Option<&'static str>> {
    std::iter::once(None).chain(VALUES.iter().map(|value| Some(*value)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_intersection_allows_what_all_terms_allow(terms in proptest::collection::vec(any_term(), 1..5)) {
        let mut symbols = table();
        let mut all: Option<Requirement> = None;
        for (operator, values) in &terms {
            let one = parsed(*operator, values, &mut symbols);
            all = Some(match all {
                Some(all) => all.intersection(&one, &symbols),
                None => one,
            });
        }
        let all = all.unwrap();
        let mut allowed = false;
        for label in labels() {
            let expected = terms.iter().all(|(operator, values)| means(*operator, values, label));
            let symbol = label.map(|label| symbols.find(label).unwrap());
            prop_assert_eq!(all.allows(symbol, &symbols), expected, "{:?} of {:?}", label, terms);
            allowed |= expected;
        }
        // Values beyond those of the test may be allowed too, so only one direction holds.
        prop_assert!(!(allowed && all.is_impossible(&symbols)), "{:?}", terms);
    }

    #[test]
    fn expressions_say_the_same(terms in proptest::collection::vec(any_term(), 1..4)) {
        let mut symbols = table();
        let mut both = |terms: &[(Operator, Vec<&str>)]| {
            let all: Vec<Requirement> = terms.iter().map(|(one, of)| parsed(*one, of, &mut symbols)).collect();
            all.into_iter().reduce(|all, one| all.intersection(&one, &symbols))
        };
        let written = both(&terms).unwrap();
        let expressions = written.expressions(&table());
        let borrowed: Vec<(Operator, Vec<&str>)> =
            expressions.iter().map(|(operator, values)| (*operator, values.iter().map(String::as_str).collect())).collect();
        let read = both(&borrowed).unwrap_or_else(|| Requirement::none_of([]));
        let symbols = table();
        for label in labels() {
            let symbol = label.map(|label| symbols.find(label).unwrap());
            prop_assert_eq!(read.allows(symbol, &symbols), written.allows(symbol, &symbols), "{:?}", expressions);
        }
    }

    #[test]
    fn two_requirements_intersect_if_their_intersection_is_possible(a in any_term(), b in any_term()) {
        let mut symbols = table();
        let (a, b) = (parsed(a.0, &a.1, &mut symbols), parsed(b.0, &b.1, &mut symbols));
        let both = a.intersection(&b, &symbols);
        prop_assert_eq!(a.intersects(&b, &symbols), !both.is_impossible(&symbols));
        prop_assert_eq!(b.intersects(&a, &symbols), a.intersects(&b, &symbols));
        prop_assert_eq!(both, b.intersection(&a, &symbols));
    }

    #[test]
    fn order_of_intersection_does_not_matter(a in any_term(), b in any_term(), c in any_term()) {
        let mut symbols = table();
        let [a, b, c] = [a, b, c].map(|(operator, values)| parsed(operator, &values, &mut symbols));
        let left = a.intersection(&b, &symbols).intersection(&c, &symbols);
        let right = a.intersection(&b.intersection(&c, &symbols), &symbols);
        for label in labels() {
            let symbol = label.map(|label| symbols.find(label).unwrap());
            prop_assert_eq!(left.allows(symbol, &symbols), right.allows(symbol, &symbols));
        }
        prop_assert_eq!(left.is_impossible(&symbols), right.is_impossible(&symbols));
    }
}

#[test]
fn contradictions_are_found_without_a_node() {
    let mut symbols = table();
    let cases: [(&[(Operator, &[&str])], bool); 9] = [
        (&[(Operator::In, &["a"]), (Operator::In, &["b"])], true),
        (&[(Operator::In, &["a", "b"]), (Operator::NotIn, &["a"])], false),
        (&[(Operator::In, &["a"]), (Operator::NotIn, &["a"])], true),
        (&[(Operator::Exists, &[]), (Operator::DoesNotExist, &[])], true),
        (&[(Operator::NotIn, &["a"]), (Operator::DoesNotExist, &[])], false),
        (&[(Operator::Gt, &["1"]), (Operator::Lt, &["2"])], true),
        (&[(Operator::Gt, &["1"]), (Operator::Lt, &["3"])], false),
        (&[(Operator::Gt, &["1"]), (Operator::Lt, &["3"]), (Operator::NotIn, &["2"])], true),
        (&[(Operator::Gt, &["9223372036854775807"])], true),
    ];
    for (terms, impossible) in cases {
        let key = symbols.intern("key");
        let mut requirements = Requirements::new();
        for (operator, values) in terms {
            let requirement = parsed(*operator, values, &mut symbols);
            requirements.add(key, requirement, &symbols);
        }
        assert_eq!(requirements.contradiction(&symbols), impossible.then_some(key), "{terms:?}");
    }
}

#[test]
fn a_pod_against_a_pool() {
    let mut symbols = table();
    let [zone, arch, team] = ["zone", "arch", "team"].map(|key| symbols.intern(key));
    let mut pool = Requirements::new();
    let zones = parsed(Operator::In, &["a", "b"], &mut symbols);
    pool.add(zone, zones, &symbols);
    let well_known = [zone, arch];
    let mut ask = |key, operator, values: &[&str], undefined| {
        let mut pod = Requirements::new();
        let requirement = parsed(operator, values, &mut symbols);
        pod.add(key, requirement, &symbols);
        pod.compatible_with(&pool, undefined, &symbols).map_err(|conflict| conflict.key)
    };
    let may_be = Undefined::MayBe(&well_known);
    assert_eq!(ask(zone, Operator::In, &["b", "c"], may_be), Ok(()));
    assert_eq!(ask(zone, Operator::In, &["c"], may_be), Err(zone));
    assert_eq!(ask(zone, Operator::NotIn, &["a", "b"], may_be), Err(zone));
    // A well-known label is filled in later; one of the user's own must be in the pool.
    assert_eq!(ask(arch, Operator::In, &["a"], may_be), Ok(()));
    assert_eq!(ask(arch, Operator::In, &["a"], Undefined::IsMissing), Err(arch));
    assert_eq!(ask(team, Operator::In, &["a"], may_be), Err(team));
    assert_eq!(ask(team, Operator::NotIn, &["a"], may_be), Ok(()));
    assert_eq!(ask(team, Operator::DoesNotExist, &[], may_be), Ok(()));
    assert_eq!(ask(team, Operator::Exists, &[], may_be), Err(team));
}

#[test]
fn labels_of_a_node_that_is_there() {
    let mut symbols = table();
    let [zone, cpu] = ["zone", "cpu"].map(|key| symbols.intern(key));
    let node = Requirements::of_labels([(zone, symbols.intern("a")), (cpu, symbols.intern("2"))]);
    let label = |key| node.get(key).and_then(Requirement::only_value);
    let mut pod = Requirements::new();
    pod.add(cpu, Requirement::range(Some(2), None), &symbols);
    assert!(pod.match_labels(label, &symbols));
    pod.add(zone, Requirement::does_not_exist(), &symbols);
    assert!(!pod.match_labels(label, &symbols));
}

#[test]
fn bad_requirements_are_refused_in_words() {
    let mut symbols = table();
    let mut problem = |operator, values: &[&str]| {
        Requirement::parse(operator, values.iter().copied(), &mut symbols).unwrap_err().to_string()
    };
    assert_eq!(problem(Operator::In, &[]), "In needs at least one value");
    assert_eq!(problem(Operator::Exists, &["a"]), "Exists takes no values");
    assert_eq!(problem(Operator::Gt, &["1", "2"]), "Gt takes exactly one value, not 2");
    assert_eq!(problem(Operator::Lte, &["1.5"]), "Lte takes a whole number, not \"1.5\"");
    let unknown = "in".parse::<Operator>().unwrap_err().to_string();
    assert_eq!(unknown, "operator \"in\" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte");
    let two = parsed(Operator::In, &["a", "b", "a"], &mut symbols);
    assert_eq!(
        two.clone().with_min_values(3).unwrap_err().to_string(),
        "minValues is 3, but In names only 2 different values"
    );
    assert_eq!(two.with_min_values(2).unwrap().min_values(), Some(2));
}

#[test]
fn min_values_of_an_intersection_is_the_larger() {
    let symbols = table();
    let a = Requirement::exists().with_min_values(2).unwrap();
    let b = Requirement::exists().with_min_values(5).unwrap();
    assert_eq!(a.intersection(&b, &symbols).min_values(), Some(5));
    assert_eq!(a.intersection(&Requirement::exists(), &symbols).min_values(), Some(2));
}

#[test]
fn requirements_in_words() {
    let mut symbols = table();
    let mut words = |operator, values: &[&str]| {
        let requirement = parsed(operator, values, &mut symbols);
        requirement.describe(&symbols, 2).to_string()
    };
    assert_eq!(words(Operator::In, &["b", "a"]), "In [a, b]");
    assert_eq!(words(Operator::NotIn, &["c", "b", "a", "0"]), "NotIn [0, a, 2 more]");
    assert_eq!(words(Operator::Exists, &[]), "Exists");
    assert_eq!(words(Operator::DoesNotExist, &[]), "DoesNotExist");
    assert_eq!(words(Operator::Gt, &["1"]), "Gte 2");
    let both = Requirement::range(Some(1), Some(3)).intersection(&Requirement::exists(), &symbols);
    assert_eq!(both.describe(&symbols, 2).to_string(), "Gte 1, Lte 3");
}
