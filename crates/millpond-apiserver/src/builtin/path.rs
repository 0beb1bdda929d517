//! Field paths that cost nothing until an error asks for their text.

use std::fmt;

/// A step on the way to a field, linked to the steps before it: `spec.containers[0].env[1].name`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The first field of a path.
    pub(crate) const fn root(name: &'a str) -> Self {
        Self { parent: None, step: Step::Field(name) }
    }

    /// A field below.
    pub(crate) const fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// An item of a list.
    pub(crate) const fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of a map.
    pub(crate) const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() && !name.is_empty() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_kubernetes_writes_it() {
        let spec = Path::root("spec");
        assert_eq!(
            spec.child("containers").index(0).child("env").index(12).child("name").to_string(),
            "spec.containers[0].env[12].name"
        );
        assert_eq!(Path::root("data").key("a.b").to_string(), "data[a.b]");
    }
}
