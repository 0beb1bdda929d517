//! Which form of a list a client wants. The offers are, in this order, `text/html`, `text/plain` and `application/json`;
//! of equally welcome ones the first is taken, as Nodepool does.

const OFFERS: [(&str, &str); 3] = [("text", "html"), ("text", "plain"), ("application", "json")];

/// Whether the best offer for an `Accept` header is JSON.
pub(super) fn wants_json(accept: Option<&str>) -> bool {
    let Some(accept) = accept else { return false };
    let mut best: Option<(usize, u32)> = None;
    for (index, offer) in OFFERS.iter().enumerate() {
        let quality = quality(accept, *offer);
        if quality > 0 && best.is_none_or(|(_, known)| quality > known) {
            best = Some((index, quality));
        }
    }
    best.is_some_and(|(index, _)| OFFERS[index].1 == "json")
}

/// How welcome an offer is, in thousandths, by the most specific range that it is in.
fn quality(accept: &str, (kind, subtype): (&str, &str)) -> u32 {
    let mut found = (0, 0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let Some((range_kind, range_subtype)) = parts.next().and_then(|name| name.split_once('/')) else { continue };
        let specificity = match (range_kind, range_subtype) {
            ("*", "*") => 1,
            (of, "*") if of.eq_ignore_ascii_case(kind) => 2,
            (of, name) if of.eq_ignore_ascii_case(kind) && name.eq_ignore_ascii_case(subtype) => 3,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|text| text.parse::<f64>().ok());
        let quality = (quality.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u32;
        if specificity > found.0 {
            found = (specificity, quality);
        }
    }
    found.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_for_clients_that_prefer_it() {
        for (accept, json) in [
            (None, false),
            (Some("*/*"), false),
            (Some("application/json"), true),
            (Some("application/*"), true),
            (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), false),
            (Some("application/json, text/plain, */*"), false),
            (Some("application/json, */*;q=0.1"), true),
            (Some("text/plain;q=0.5, application/json"), true),
            (Some("application/json;q=0"), false),
            (Some("image/png"), false),
        ] {
            assert_eq!(wants_json(accept), json, "{accept:?}");
        }
    }
}
