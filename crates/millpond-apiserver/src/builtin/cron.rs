//! Schedules of CronJobs: five fields, or a descriptor such as `@daily`. Checked, not computed.

/// A field of a schedule.
struct Field {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { low: 0, high: 59, names: &[] },
    Field { low: 0, high: 23, names: &[] },
    Field { low: 1, high: 31, names: &[] },
    Field { low: 1, high: 12, names: &MONTHS },
    Field { low: 0, high: 6, names: &DAYS },
];
const DESCRIPTORS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// The error in a schedule, if any.
pub(super) fn problem(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    let spec = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => match rest.split_once(' ') {
            Some((zone, spec)) if jiff::tz::TimeZone::get(zone).is_ok() => spec.trim(),
            Some((zone, _)) => return Some(format!("provided bad location {zone}: unknown time zone {zone}")),
            None => return Some("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned()),
        },
        None => schedule,
    };
    if spec.starts_with('@') {
        return descriptor_problem(spec);
    }
    let parts: Vec<&str> = spec.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        let (count, shown) = (parts.len(), parts.join(" "));
        return Some(format!("expected exactly {} fields, found {count}: [{shown}]", FIELDS.len()));
    }
    parts.iter().zip(&FIELDS).find_map(|(part, field)| field_problem(part, field))
}

fn descriptor_problem(spec: &str) -> Option<String> {
    if DESCRIPTORS.contains(&spec) {
        return None;
    }
    match spec.strip_prefix("@every ") {
        Some(duration) => {
            duration_problem(duration).map(|problem| format!("failed to parse duration {spec}: time: {problem}"))
        }
        None => Some(format!("unrecognized descriptor: {spec}")),
    }
}

/// The error in a duration such as `1h30m`, in Go's words.
fn duration_problem(text: &str) -> Option<String> {
    let invalid = || Some(format!("invalid duration {text:?}"));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if rest[..digits].parse::<f64>().is_err() {
            return invalid();
        }
        let after = &rest[digits..];
        let unit = &after[..after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len())];
        if unit.is_empty() {
            return Some(format!("missing unit in duration {text:?}"));
        }
        if !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&unit) {
            return Some(format!("unknown unit {unit:?} in duration {text:?}"));
        }
        rest = &after[unit.len()..];
    }
    None
}

fn field_problem(text: &str, field: &Field) -> Option<String> {
    text.split(',').filter(|range| !range.is_empty()).find_map(|range| range_problem(range, field))
}

fn range_problem(range: &str, field: &Field) -> Option<String> {
    let stepped: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = stepped[0].split('-').collect();
    let (start, mut end) = if matches!(ends[0], "*" | "?") {
        (field.low, field.high)
    } else {
        let start = match number(ends[0], field) {
            Ok(start) => start,
            Err(problem) => return Some(problem),
        };
        match ends.len() {
            1 => (start, start),
            2 => match number(ends[1], field) {
                Ok(end) => (start, end),
                Err(problem) => return Some(problem),
            },
            _ => return Some(format!("too many hyphens: {range}")),
        }
    };
    match stepped.len() {
        1 => {}
        2 => match step(stepped[1]) {
            Ok(0) => return Some(format!("step of range should be a positive number: {range}")),
            Ok(_) if ends.len() == 1 => end = field.high,
            Ok(_) => {}
            Err(problem) => return Some(problem),
        },
        _ => return Some(format!("too many slashes: {range}")),
    }
    if start < field.low {
        return Some(format!("beginning of range ({start}) below minimum ({}): {range}", field.low));
    }
    if end > field.high {
        return Some(format!("end of range ({end}) above maximum ({}): {range}", field.high));
    }
    (start > end).then(|| format!("beginning of range ({start}) beyond end of range ({end}): {range}"))
}

fn number(text: &str, field: &Field) -> Result<u32, String> {
    let name = text.to_lowercase();
    match field.names.iter().position(|known| *known == name) {
        Some(index) => Ok(index as u32 + field.low),
        None => step(text),
    }
}

fn step(text: &str) -> Result<u32, String> {
    let failed = || format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax");
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => u32::try_from(number).map_err(|_| failed()),
        Err(_) => Err(failed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_checked_field_by_field() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-MAR mon", "@daily", "@every 1h30m", "0 0 ? * 6"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, expected) in [
            ("", "empty spec string"),
            ("x", "expected exactly 5 fields, found 1: [x]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@foo", "unrecognized descriptor: @foo"),
            ("@every 1x", "failed to parse duration @every 1x: time: unknown unit \"x\" in duration \"1x\""),
            ("@every 1", "failed to parse duration @every 1: time: missing unit in duration \"1\""),
        ] {
            assert_eq!(problem(bad).as_deref(), Some(expected), "{bad}");
        }
    }
}
