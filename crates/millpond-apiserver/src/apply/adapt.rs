//! Field sets adapted to a schema.

use super::fields::FieldSet;
use super::path::PathElement;
use super::typed::{FieldType, Form, Relation};

/// The set with all named fields on the way to its members as members. What is named by the schema is not
/// owned for itself; when fields are removed, an object that was only there for them goes with them.
pub(super) fn with_named_fields<'a>(set: &FieldSet<'a>, place: FieldType<'_>) -> FieldSet<'a> {
    let mut out = FieldSet::new();
    for (element, member, below) in set.nodes() {
        let (named, below_place) = match element {
            PathElement::Field(name) if place.general_form() == Some(Form::Map) => {
                let field = place.field(name);
                (field.named, field.place)
            }
            PathElement::Key(_) if place.takes_lists() => (false, place.item()),
            _ => (false, FieldType::Undeclared),
        };
        let member = member || (named && !below.is_empty());
        out.push(element.clone(), member, with_named_fields(below, below_place));
    }
    out
}

/// Adapts a set to a schema in which a value is now owned as a whole: a manager that owned a part of it then owns all
/// of it. Returns whether anything changed.
pub(super) fn reconcile(set: &mut FieldSet<'_>, place: FieldType<'_>) -> bool {
    let form = place.general_form();
    if form == Some(Form::Map) && place.is_free_map() {
        return false;
    }
    let mut changed = false;
    for (element, member, below) in set.nodes_mut() {
        let below_place = match (form, element) {
            (Some(Form::Map), PathElement::Field(name)) => place.field(name).place,
            (Some(Form::List), _) => place.item(),
            _ => continue,
        };
        if below.is_empty() {
            continue;
        }
        let whole = match below_place.general_form() {
            Some(Form::Map) => !below_place.is_free_map() && below_place.whole_map(),
            Some(Form::List) => matches!(below_place.relation(), Relation::Atomic),
            Some(Form::Scalar) | None => continue,
        };
        if whole {
            *member = true;
            *below = FieldSet::new();
            changed = true;
        } else {
            changed |= reconcile(below, below_place);
        }
    }
    changed
}
