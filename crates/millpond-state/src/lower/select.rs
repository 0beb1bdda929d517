//! Selectors and requirements of objects as requirements of the planner.

pub(crate) use millpond_api::labels::current_name;
use millpond_api::meta::Invalid;
use millpond_api::selector::Operator as Named;
use millpond_plan::model::{Labels, Snapshot};
use millpond_plan::requirement::{Operator, Requirement, Requirements};
use millpond_plan::symbol::{Symbol, Symbols};

use crate::objects::meta::{Expression, LabelSelector, NodeSelector, NodeTerm};
use crate::objects::text::Pairs;

/// The operators that a field allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Those of label selectors.
    Sets,
    /// Those of node selectors.
    Numbers,
}

/// The planner's operator.
pub(crate) fn operator(named: Named) -> Operator {
    match named {
        Named::In => Operator::In,
        Named::NotIn => Operator::NotIn,
        Named::Exists => Operator::Exists,
        Named::DoesNotExist => Operator::DoesNotExist,
        Named::Gt => Operator::Gt,
        Named::Lt => Operator::Lt,
        Named::Gte => Operator::Gte,
        Named::Lte => Operator::Lte,
    }
}

/// Puts the field of a mistake below another.
pub(crate) fn within(prefix: &str) -> impl FnOnce(Invalid) -> Invalid + '_ {
    move |invalid| {
        let separator = if invalid.field.is_empty() || invalid.field.starts_with('[') { "" } else { "." };
        Invalid::new(format!("{prefix}{separator}{}", invalid.field), invalid.problem)
    }
}

/// Labels as symbols.
pub(crate) fn labels(pairs: &Pairs<'_>, symbols: &mut Symbols) -> Labels {
    let interned: Vec<(Symbol, Symbol)> =
        pairs.iter().map(|(key, value)| (symbols.intern(key), symbols.intern(value))).collect();
    interned.into_iter().collect()
}

fn expression(expression: &Expression<'_>, allowed: Allowed, symbols: &mut Symbols) -> Result<Requirement, Invalid> {
    let fits = match expression.operator {
        Named::In | Named::NotIn | Named::Exists | Named::DoesNotExist => true,
        Named::Gt | Named::Lt => allowed == Allowed::Numbers,
        Named::Gte | Named::Lte => false,
    };
    if !fits {
        let names = if allowed == Allowed::Numbers { ", Gt, Lt" } else { "" };
        let problem = format!("`{:?}` is not one of In, NotIn, Exists, DoesNotExist{names}", expression.operator);
        return Err(Invalid::new("operator", problem));
    }
    let values = expression.values.iter().map(|value| &**value);
    Requirement::parse(operator(expression.operator), values, symbols)
        .map_err(|error| Invalid::new("values", error.to_string()))
}

/// A selector of labels.
pub(crate) fn label_selector(selector: &LabelSelector<'_>, symbols: &mut Symbols) -> Result<Requirements, Invalid> {
    let mut all = Requirements::new();
    for (key, value) in selector.match_labels.iter() {
        let (key, value) = (symbols.intern(key), symbols.intern(value));
        all.add(key, Requirement::is(value), symbols);
    }
    for (index, entry) in selector.match_expressions.iter().enumerate() {
        let requirement =
            expression(entry, Allowed::Sets, symbols).map_err(within(&format!("matchExpressions[{index}]")))?;
        let key = symbols.intern(&entry.key);
        all.add(key, requirement, symbols);
    }
    Ok(all)
}

/// One term of a node affinity; `None` if it matches nothing, as an empty term does.
pub(crate) fn node_term(term: &NodeTerm<'_>, tables: &mut Snapshot) -> Result<Option<Requirements>, Invalid> {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return Ok(None);
    }
    let mut all = Requirements::new();
    for (index, entry) in term.match_expressions.iter().enumerate() {
        let requirement = expression(entry, Allowed::Numbers, &mut tables.symbols)
            .map_err(within(&format!("matchExpressions[{index}]")))?;
        let key = tables.symbols.intern(current_name(&entry.key));
        all.add(key, requirement, &tables.symbols);
    }
    for (index, entry) in term.match_fields.iter().enumerate() {
        let here = format!("matchFields[{index}]");
        if &*entry.key != "metadata.name" {
            let problem = format!("`{}` is not `metadata.name`, the only field of a node there is", &*entry.key);
            return Err(Invalid::new(format!("{here}.key"), problem));
        }
        let requirement = expression(entry, Allowed::Sets, &mut tables.symbols).map_err(within(&here))?;
        all.add(tables.names.node_name, requirement, &tables.symbols);
    }
    Ok(Some(all))
}

/// The alternatives of a node selector.
pub(crate) fn node_selector(selector: &NodeSelector<'_>, tables: &mut Snapshot) -> Result<Vec<Requirements>, Invalid> {
    let mut terms = Vec::with_capacity(selector.node_selector_terms.len());
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        let term = node_term(term, tables).map_err(within(&format!("nodeSelectorTerms[{index}]")))?;
        terms.extend(term);
    }
    Ok(terms)
}
