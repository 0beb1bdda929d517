//! Templates of `dynamic-labels` and `dynamic-instance-properties`: Python's `str.format` over the request, as far as attributes go.

use crate::model::NodeRequest;

/// The text of a template; `Err` names what it speaks of that is not there.
pub(super) fn format(template: &str, request: Option<(&str, &NodeRequest)>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), template);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let mark = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(mark) {
            out.push_str(mark);
            rest = after;
            continue;
        }
        let end = rest.find('}').filter(|_| mark == "{").ok_or_else(|| "a single brace".to_owned())?;
        out.push_str(&value(&rest[..end], request)?);
        rest = &rest[end + 1..];
    }
    Ok(out + rest)
}

fn value(field: &str, request: Option<(&str, &NodeRequest)>) -> Result<String, String> {
    let none = || "None".to_owned();
    let name = field.strip_prefix("request.").ok_or_else(|| field.to_owned())?;
    let Some((id, request)) = request else { return Ok(none()) };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(none);
    Ok(match name {
        "id" => id.to_owned(),
        "labels" => {
            format!("[{}]", request.node_types.iter().map(|it| format!("'{it}'")).collect::<Vec<_>>().join(", "))
        }
        "requestor" => text(&request.requestor),
        "requestor_data" => request.requestor_data.as_ref().map_or_else(none, crate::model::Json::python),
        "relative_priority" => request.relative_priority.to_string(),
        "event_id" => text(&request.event_id),
        "created_time" => request.created_time.map_or_else(none, |time| time.to_string()),
        "tenant_name" => text(&request.tenant_name),
        _ => return Err(field.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_the_request_are_filled_in() {
        let mut request = NodeRequest::new(vec!["small".to_owned()], 0.0);
        request.tenant_name = Some("acme".to_owned());
        let of = |template: &str| format(template, Some(("200-1", &request)));
        assert_eq!(of("{request.tenant_name}-x"), Ok("acme-x".to_owned()));
        assert_eq!(of("{{{request.id}}}"), Ok("{200-1}".to_owned()));
        assert_eq!(of("{request.labels} {request.event_id}"), Ok("['small'] None".to_owned()));
        assert_eq!(of("{request.password}"), Err("request.password".to_owned()));
        assert_eq!(of("{node.id}"), Err("node.id".to_owned()));
        assert!(of("{").is_err() && of("}").is_err());
        assert_eq!(format("{request.id}", None), Ok("None".to_owned()));
    }
}
