//! Formats numbers and durations for sentences and tables.

/// A number with its noun: `1 pod`, `2 pods`.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count as f64, 0), if count == 1 { "" } else { "s" })
}

/// A number with a comma between thousands.
pub fn grouped(number: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if fraction.is_empty() { out } else { format!("{out}.{fraction}") }
}

/// A span of time as kubectl writes ages: the two greatest units where the second still matters.
pub fn span(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let both = |unit: i64, name: &str, below: i64, below_name: &str| match seconds % unit / below {
        0 => format!("{}{name}", seconds / unit),
        rest => format!("{}{name}{rest}{below_name}", seconds / unit),
    };
    match seconds {
        ..0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => both(MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => both(HOUR, "h", MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => both(DAY, "d", HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => both(YEAR, "y", DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// Memory in the greatest unit that leaves a number above one, with a digit where it is not whole.
pub fn memory(bytes: i64) -> String {
    let (mut amount, mut unit) = (bytes as f64, "");
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi"] {
        if amount < 1024.0 {
            break;
        }
        (amount, unit) = (amount / 1024.0, next);
    }
    let digits = usize::from(amount.fract() >= 0.05 && amount < 1000.0);
    format!("{amount:.digits$}{unit}")
}

/// An amount of a resource as people write it.
pub fn amount(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => millpond_api::quantity::cores(u64::try_from(amount).unwrap_or(0)),
        "memory" | "ephemeral-storage" => memory(amount),
        _ => amount.to_string(),
    }
}

/// A part of a whole in percent, rounded down; `None` if the whole is zero.
pub fn percent(part: i64, whole: i64) -> Option<i64> {
    let hundredths = i128::from(part) * 100 / i128::from(whole).max(1);
    (whole > 0).then(|| i64::try_from(hundredths).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kubectls() {
        let spans = [-5, 0, 119, 120, 185, 599, 600, 10_799, 10_800, 11_100, 28_800, 172_800, 180_000, 691_200];
        let lines: Vec<String> = spans.into_iter().map(span).collect();
        let kubectls =
            ["0s", "0s", "119s", "2m", "3m5s", "9m59s", "10m", "179m", "3h", "3h5m", "8h", "2d", "2d2h", "8d"];
        assert_eq!(lines, kubectls);
        assert_eq!((span(800 * 86_400), span(3000 * 86_400)), ("2y70d".to_owned(), "8y".to_owned()));
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!((memory(0), memory(512 << 20), memory(3 << 29)), ("0".into(), "512Mi".into(), "1.5Gi".into()));
        assert_eq!((memory(1 << 40), memory((62 << 30) + 1)), ("1Ti".into(), "62Gi".into()));
        assert_eq!(
            (amount("cpu", 1500), amount("cpu", 8000), amount("pods", 7)),
            ("1500m".into(), "8".into(), "7".into())
        );
        assert_eq!((percent(1, 3), percent(0, 3), percent(1, 0)), (Some(33), Some(0), None));
    }
}
