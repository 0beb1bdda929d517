//! Field sets: which fields of an object a manager owns, and their form in FieldsV1.
//!
//! A set is a trie of [`PathElement`]s. Every node says whether the path that ends there is a member, and
//! holds the nodes below it; a node that is neither a member nor a parent does not exist. Nodes are sorted,
//! so that the operations on two sets are merges.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use super::path::{Escape, PathElement, PathError, order_elements, write_escaped};

/// Sets deeper than this are refused, and objects deeper than this are owned as a whole from here on.
///
/// FieldsV1 mirrors the nesting of its object and stands four levels inside it, and JSON deeper than 128
/// levels is not read back; upstream's own limit is 10,000.
pub const MAX_DEPTH: usize = 100;

/// A set of fields. Borrows from the objects, schemas and FieldsV1 that it was made of.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Node<'a> {
    element: PathElement<'a>,
    member: bool,
    children: FieldSet<'a>,
}

/// FieldsV1 that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A key is not a path element.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A value is not an object where fields are expected.
    #[error("expected an object of fields, got {0}")]
    NotAnObject(&'static str),
    /// Nesting beyond [`MAX_DEPTH`].
    #[error("fields are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
}

impl<'a> FieldSet<'a> {
    /// The empty set.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// The set of these paths, each a sequence of field names.
    pub fn of(paths: &[&[&'a str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(path.iter().map(|name| PathElement::field(*name)));
        }
        set
    }

    /// Whether nothing is a member.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    /// Makes a path a member. The empty path is the whole object, which has no owner.
    pub fn insert(&mut self, path: impl IntoIterator<Item = PathElement<'a>>) {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            let node = set.node_mut(element);
            node.member |= path.peek().is_none();
            set = &mut node.children;
        }
    }

    /// Whether a path is a member.
    pub fn has(&self, path: &[PathElement<'_>]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for element in parents {
            match set.below(element) {
                Some(below) => set = below,
                None => return false,
            }
        }
        set.has_element(last)
    }

    /// Whether the path of this one element is a member.
    pub(super) fn has_element(&self, element: &PathElement<'_>) -> bool {
        self.find(element).is_some_and(|node| node.member)
    }

    /// The set below an element, if there is one.
    pub(super) fn below(&self, element: &PathElement<'_>) -> Option<&Self> {
        self.find(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    /// The nodes of this level: element, whether it is a member, what is below.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&PathElement<'a>, bool, &FieldSet<'a>)> {
        self.nodes.iter().map(|node| (&node.element, node.member, &node.children))
    }

    /// The nodes of this level, to be changed: element, whether it is a member, what is below. A node must
    /// stay a member or a parent.
    pub(super) fn nodes_mut(&mut self) -> impl Iterator<Item = (&PathElement<'a>, &mut bool, &mut FieldSet<'a>)> {
        self.nodes.iter_mut().map(|node| (&node.element, &mut node.member, &mut node.children))
    }

    /// Appends a node; the caller keeps the order, or calls [`Self::sort`] afterwards. A node that neither is a member
    /// nor has children is left out.
    pub(super) fn push(&mut self, element: PathElement<'a>, member: bool, children: FieldSet<'a>) {
        if member || !children.is_empty() {
            self.nodes.push(Node { element, member, children });
        }
    }

    /// Restores the order after pushes in some other order. Elements must be distinct.
    pub(super) fn sort(&mut self) {
        if !self.nodes.is_sorted_by(|left, right| left.element < right.element) {
            self.nodes.sort_unstable_by(|left, right| left.element.cmp(&right.element));
        }
    }

    fn find(&self, element: &PathElement<'_>) -> Option<&Node<'a>> {
        let place = self.nodes.binary_search_by(|node| order_elements(&node.element, element)).ok()?;
        self.nodes.get(place)
    }

    fn node_mut(&mut self, element: PathElement<'a>) -> &mut Node<'a> {
        let place = match self.nodes.binary_search_by(|node| order_elements(&node.element, &element)) {
            Ok(place) => place,
            Err(place) => {
                self.nodes.insert(place, Node { element, member: false, children: Self::new() });
                place
            }
        };
        &mut self.nodes[place]
    }

    /// Members of either set.
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len() + other.nodes.len());
        let (mut left, mut right) = (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
            match l.element.cmp(&r.element) {
                Ordering::Less => nodes.extend(left.next()),
                Ordering::Greater => nodes.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(l), Some(r)) = (left.next(), right.next()) {
                        let children = l.children.union(r.children);
                        nodes.push(Node { element: l.element, member: l.member || r.member, children });
                    }
                }
            }
        }
        nodes.extend(left);
        nodes.extend(right);
        Self { nodes }
    }

    /// Members of both sets.
    pub fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let mut out = Self::new();
        for_pairs(&self.nodes, &other.nodes, |left, right| {
            if let Some(right) = right {
                let children = left.children.intersection(&right.children);
                out.push(left.element.clone(), left.member && right.member, children);
            }
        });
        out
    }

    /// Whether all members are members of another set, too.
    pub fn is_subset(&self, other: &FieldSet<'_>) -> bool {
        let mut subset = self.nodes.len() <= other.nodes.len();
        if subset {
            for_pairs(&self.nodes, &other.nodes, |left, right| {
                subset &= right
                    .is_some_and(|right| (!left.member || right.member) && left.children.is_subset(&right.children));
            });
        }
        subset
    }

    /// Takes the members of another set out of this one. What is below them stays.
    pub fn subtract(&mut self, other: &FieldSet<'_>) {
        self.remove(other, false);
    }

    /// Takes the members of another set, and all that is below them, out of this one.
    pub fn subtract_recursively(&mut self, other: &FieldSet<'_>) {
        self.remove(other, true);
    }

    fn remove(&mut self, other: &FieldSet<'_>, recursively: bool) {
        if self.is_empty() || other.is_empty() {
            return;
        }
        let mut right = other.nodes.iter().peekable();
        self.nodes.retain_mut(|left| {
            while right.next_if(|r| order_elements(&r.element, &left.element).is_lt()).is_some() {}
            let Some(r) = right.next_if(|r| order_elements(&r.element, &left.element).is_eq()) else { return true };
            if r.member {
                left.member = false;
                if recursively {
                    return false;
                }
            }
            left.children.remove(&r.children, recursively);
            left.member || !left.children.is_empty()
        });
    }

    /// Members with no members below them.
    pub fn leaves(&self) -> Self {
        let mut out = Self::new();
        for node in &self.nodes {
            out.push(node.element.clone(), node.member && node.children.is_empty(), node.children.leaves());
        }
        out
    }

    /// The members as paths: those of one level before those below, as upstream lists conflicts.
    pub fn paths(&self) -> Vec<Vec<PathElement<'a>>> {
        fn walk<'a>(set: &FieldSet<'a>, prefix: &mut Vec<PathElement<'a>>, out: &mut Vec<Vec<PathElement<'a>>>) {
            for node in set.nodes.iter().filter(|node| node.member) {
                out.push(prefix.iter().chain([&node.element]).cloned().collect());
            }
            for node in &set.nodes {
                prefix.push(node.element.clone());
                walk(&node.children, prefix, out);
                prefix.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }

    /// A set that borrows nothing.
    pub fn into_owned(self) -> FieldSet<'static> {
        let own = |node: Node<'a>| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        };
        FieldSet { nodes: self.nodes.into_iter().map(own).collect() }
    }

    /// Reads FieldsV1. Path elements of unknown types are skipped, as a later version may have written them.
    pub fn from_value(fields: &'a Value) -> Result<Self, FieldsError> {
        Ok(read(fields, 0)?.0)
    }

    /// FieldsV1 as a JSON value.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, with_self: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if with_self && !self.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            let mut key = String::new();
            node.element.write(&mut key);
            map.insert(key, Value::Object(node.children.to_map(node.member)));
        }
        map
    }

    /// Appends FieldsV1 as JSON text, in canonical order.
    pub fn write_json(&self, out: &mut String) {
        self.write_object(false, out, &mut String::new());
    }

    fn write_object(&self, with_self: bool, out: &mut String, scratch: &mut String) {
        out.push('{');
        let mut first = true;
        if with_self && !self.is_empty() {
            out.push_str("\".\":{}");
            first = false;
        }
        for node in &self.nodes {
            if !first {
                out.push(',');
            }
            first = false;
            scratch.clear();
            node.element.write(scratch);
            out.push('"');
            write_escaped(out, scratch, Escape::Plain);
            out.push_str("\":");
            node.children.write_object(node.member, out, scratch);
        }
        out.push('}');
    }
}

impl FieldSet<'static> {
    /// Reads FieldsV1 from JSON text.
    pub fn from_json(text: &[u8]) -> Result<Self, FieldsError> {
        let value: Value = serde_json::from_slice(text).map_err(|error| FieldsError::Json(error.to_string()))?;
        Ok(FieldSet::from_value(&value)?.into_owned())
    }
}

/// Calls `f` with every node on the left and, if it exists, the node of the same element on the right.
fn for_pairs<'l, 'r, 'a, 'b>(
    left: &'l [Node<'a>],
    right: &'r [Node<'b>],
    mut f: impl FnMut(&'l Node<'a>, Option<&'r Node<'b>>),
) {
    let mut right = right.iter().peekable();
    for node in left {
        while right.next_if(|r| order_elements(&r.element, &node.element).is_lt()).is_some() {}
        f(node, right.next_if(|r| order_elements(&r.element, &node.element).is_eq()));
    }
}

/// Reads one FieldsV1 object: the set below, and whether the path to here is a member. An object without children is a
/// member even without the key `.`.
fn read(fields: &Value, depth: usize) -> Result<(FieldSet<'_>, bool), FieldsError> {
    if depth > MAX_DEPTH {
        return Err(FieldsError::TooDeep);
    }
    let map = match fields {
        Value::Object(map) => map,
        Value::Null => return Ok((FieldSet::new(), true)),
        Value::Bool(_) => return Err(FieldsError::NotAnObject("a boolean")),
        Value::Number(_) => return Err(FieldsError::NotAnObject("a number")),
        Value::String(_) => return Err(FieldsError::NotAnObject("a string")),
        Value::Array(_) => return Err(FieldsError::NotAnObject("a list")),
    };
    let mut set = FieldSet { nodes: Vec::with_capacity(map.len()) };
    let mut member = false;
    for (key, below) in map {
        if key == "." {
            member = true;
            continue;
        }
        let Some(element) = PathElement::parse(key)? else { continue };
        let (children, is_member) = read(below, depth + 1)?;
        if set.nodes.last().is_none_or(|last| last.element < element) {
            set.nodes.push(Node { element, member: is_member, children });
        } else {
            let node = set.node_mut(element);
            node.member |= is_member;
            if !children.is_empty() {
                node.children = children;
            }
        }
    }
    let member = member || set.is_empty();
    Ok((set, member))
}

/// One path per line.
impl fmt::Debug for FieldSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for path in self.paths() {
            for element in path {
                write!(f, "{element}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: &Value) -> FieldSet<'_> {
        FieldSet::from_value(fields).unwrap()
    }

    fn text(set: &FieldSet<'_>) -> String {
        let mut out = String::new();
        set.write_json(&mut out);
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), set.to_value());
        out
    }

    #[test]
    fn fields_are_read_and_written() {
        for fields in [
            "{}",
            r#"{"f:a":{}}"#,
            r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}"#,
            r#"{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{"f:x":{}}}}"#,
            r#"{"f:s":{"v:\"a\"":{},"v:\"b\"":{}}}"#,
            r#"{"f:n":{"v:2":{},"v:10":{}}}"#,
        ] {
            let set = FieldSet::from_json(fields.as_bytes()).unwrap();
            assert_eq!(text(&set), fields);
        }
    }

    #[test]
    fn odd_fields() {
        // Null and an object of unknown elements are leaves, keys are put into order.
        let fields = json!({"f:a": null, "f:b": {"x:later": {}}, "f:c": {".": {}, "x:later": {"f:d": {}}}});
        assert_eq!(text(&set(&fields)), r#"{"f:a":{},"f:b":{},"f:c":{}}"#);
        let fields = json!({"k:{\"port\":10}": {}, "k:{\"port\":9}": {}, "k:{\"port\":9.0}": {"f:x": {}}});
        assert_eq!(text(&set(&fields)), r#"{"k:{\"port\":9}":{".":{},"f:x":{}},"k:{\"port\":10}":{}}"#);
        for fields in [json!({"f:a": 1}), json!({"f:a": []}), json!([]), json!("x"), json!({"a": {}})] {
            assert!(FieldSet::from_value(&fields).is_err(), "{fields}");
        }
        assert!(FieldSet::from_value(&json!(null)).unwrap().is_empty());
    }

    #[test]
    fn depth_is_limited() {
        let nested = |levels: usize| (0..levels).fold(json!({}), |below, _| json!({"f:a": below}));
        assert!(FieldSet::from_value(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(FieldSet::from_value(&nested(MAX_DEPTH + 1)), Err(FieldsError::TooDeep));
    }

    #[test]
    fn operations() {
        let a = json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:d": {}}, "f:e": {"f:f": {}}});
        let b = json!({"f:b": {"f:c": {}}, "f:e": {}, "f:g": {}});
        let (a, b) = (set(&a), set(&b));
        assert_eq!(
            text(&a.clone().union(b.clone())),
            r#"{"f:a":{},"f:b":{".":{},"f:c":{},"f:d":{}},"f:e":{".":{},"f:f":{}},"f:g":{}}"#
        );
        assert_eq!(text(&a.intersection(&b)), r#"{"f:b":{"f:c":{}}}"#);
        let mut difference = a.clone();
        difference.subtract(&b);
        assert_eq!(text(&difference), r#"{"f:a":{},"f:b":{".":{},"f:d":{}},"f:e":{"f:f":{}}}"#);
        let mut difference = a.clone();
        difference.subtract_recursively(&b);
        assert_eq!(text(&difference), r#"{"f:a":{},"f:b":{".":{},"f:d":{}}}"#);
        assert_eq!(text(&a.leaves()), r#"{"f:a":{},"f:b":{"f:c":{},"f:d":{}},"f:e":{"f:f":{}}}"#);
        assert_eq!(a.len(), 5);
        assert!(a.intersection(&b).is_subset(&a) && a.is_subset(&a) && FieldSet::new().is_subset(&a));
        assert!(!a.is_subset(&b) && !a.is_subset(&a.leaves()));
        let mut none = a.clone();
        none.subtract(&a);
        assert!(none.is_empty());
    }

    #[test]
    fn membership_and_paths() {
        let fields = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}, "f:e": {}});
        let set = set(&fields);
        let path = |names: &[&'static str]| names.iter().map(|name| PathElement::field(*name)).collect::<Vec<_>>();
        assert!(set.has(&path(&["a"])) && set.has(&path(&["a", "b"])) && set.has(&path(&["c", "d"])));
        assert!(!set.has(&path(&["c"])) && !set.has(&path(&[])) && !set.has(&path(&["a", "b", "x"])));
        assert_eq!(format!("{set:?}"), ".a\n.e\n.a.b\n.c.d\n");
        assert_eq!(FieldSet::of(&[&["a"], &["a", "b"], &["c", "d"], &["e"]]), set);
    }
}
