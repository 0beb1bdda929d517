//! Cron expressions: five fields or a name such as `@daily`. This module parses them and matches them on a clock
//! without jumps; [`window`](super::window) handles the clock changes of time zones.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

use crate::model::Seconds;

/// The longest gap between two matches, in days: years such as 2100 have no 29 February.
const LONGEST_PAUSE_DAYS: i64 = 8 * 366;

/// A parsed cron expression. Its times are local times of some zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// If both day fields are restricted, a day needs to match only one of them; otherwise it must match both.
    either_day: bool,
    every_hour: bool,
}

/// Why a cron expression is invalid, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}, at column {column} of `{text}`")]
pub struct CronError {
    /// The whole expression.
    pub text: String,
    /// The first character of the offending part, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, names: &[] },
    Field { name: "hour", first: 0, last: 23, names: &[] },
    Field { name: "day of the month", first: 1, last: 31, names: &[] },
    Field { name: "month", first: 1, last: 12, names: &MONTHS },
    // Seven is accepted as Sunday.
    Field { name: "day of the week", first: 0, last: 7, names: &WEEKDAYS },
];

impl Cron {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let fail = |column: usize, message: String| CronError { text: text.to_owned(), column, message };
        let parts = words(text);
        let Some(&(_, first)) = parts.first() else {
            return Err(fail(1, "the schedule is empty".to_owned()));
        };
        if first.starts_with('@') {
            if let Some(&(column, _)) = parts.get(1) {
                return Err(fail(column, format!("nothing may follow `{first}`")));
            }
            let fields = named(first).ok_or_else(|| fail(parts[0].0, unknown_name(first)))?;
            return Self::parse(fields);
        }
        if let Some(&(column, part)) = parts.get(5) {
            return Err(fail(column, format!("`{part}` is a sixth field, a schedule has five")));
        }
        if parts.len() < 5 {
            let end = text.chars().count() + 1;
            let missing = FIELDS[parts.len()].name;
            return Err(fail(end, format!("the {missing} is missing, a schedule has five fields")));
        }
        let mut sets = [(0, false); 5];
        for ((set, field), &(column, part)) in sets.iter_mut().zip(&FIELDS).zip(&parts) {
            *set = field.parse(part).map_err(|(offset, message)| fail(column + offset, message))?;
        }
        let [(minutes, _), (hours, every_hour), (days, any_day), (months, _), (weekdays, any_weekday)] = sets;
        let cron = Self {
            minutes,
            hours,
            days,
            months,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either_day: !any_day && !any_weekday,
            every_hour,
        };
        if !cron.ever() {
            return Err(fail(parts[2].0, "none of these months has such a day".to_owned()));
        }
        Ok(cron)
    }

    /// Whether the expression matches every hour. Then an hour that a clock change leaves out is not missed.
    pub fn every_hour(&self) -> bool {
        self.every_hour
    }

    /// The last match from `floor` to `local`. Both are seconds of a clock without jumps that showed 1970 at zero.
    pub fn last_hit(&self, floor: Seconds, local: Seconds) -> Option<Seconds> {
        let floor = floor.max(local.saturating_sub(LONGEST_PAUSE_DAYS * 86_400));
        let mut date = date_of(local)?;
        let first = date_of(floor)?;
        let mut limit = Some(local.rem_euclid(86_400) / 60);
        while date >= first {
            let in_month = bit(self.months, date.month());
            if in_month
                && self.day_matches(date)
                && let Some(minute) = self.last_minute(limit.unwrap_or(24 * 60 - 1))
            {
                return Some(start_of(date)? + minute * 60).filter(|hit| *hit >= floor);
            }
            date = if in_month { date } else { date.first_of_month() }.yesterday().ok()?;
            limit = None;
        }
        None
    }

    /// The first match at or after `local` and before `ceiling`.
    pub fn next_hit(&self, local: Seconds, ceiling: Seconds) -> Option<Seconds> {
        let ceiling = ceiling.min(local.saturating_add(LONGEST_PAUSE_DAYS * 86_400));
        let mut date = date_of(local)?;
        let last = date_of(ceiling)?;
        // A match is at the start of its minute, so a minute that has begun is past.
        let mut from = (local.rem_euclid(86_400) + 59) / 60;
        while date <= last {
            let in_month = bit(self.months, date.month());
            if in_month
                && self.day_matches(date)
                && let Some(minute) = self.first_minute(from)
            {
                return Some(start_of(date)? + minute * 60).filter(|hit| *hit < ceiling);
            }
            date = if in_month { date } else { date.last_of_month() }.tomorrow().ok()?;
            from = 0;
        }
        None
    }

    fn ever(&self) -> bool {
        let longest = |month: u32| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let by_day = (1..=12).filter(|month| self.months >> month & 1 == 1).any(|month| {
            let in_month = (2_u64 << longest(month)) - 1;
            self.days & in_month != 0
        });
        by_day || self.either_day
    }

    fn day_matches(&self, date: Date) -> bool {
        let day = bit(self.days, date.day());
        let weekday = bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { day || weekday } else { day && weekday }
    }

    /// The last matching minute of a matching day, not after `limit`.
    fn last_minute(&self, limit: i64) -> Option<i64> {
        let (hour, minute) = (limit / 60, limit % 60);
        let in_hour = last_bit(self.minutes, minute).filter(|_| self.hours >> hour & 1 == 1);
        if let Some(minute) = in_hour {
            return Some(hour * 60 + minute);
        }
        let earlier = last_bit(self.hours, hour - 1)?;
        Some(earlier * 60 + last_bit(self.minutes, 59)?)
    }

    /// The first matching minute of a matching day, not before `from`.
    fn first_minute(&self, from: i64) -> Option<i64> {
        let (hour, minute) = (from / 60, from % 60);
        let in_hour = first_bit(self.minutes, minute).filter(|_| self.hours >> hour & 1 == 1);
        if let Some(minute) = in_hour {
            return Some(hour * 60 + minute);
        }
        let later = first_bit(self.hours, hour + 1)?;
        Some(later * 60 + first_bit(self.minutes, 0)?)
    }
}

fn bit(set: u64, value: i8) -> bool {
    set >> value & 1 == 1
}

fn last_bit(set: u64, limit: i64) -> Option<i64> {
    let below = if limit < 0 { 0 } else { set & (u64::MAX >> (63 - limit)) };
    (below != 0).then(|| 63 - i64::from(below.leading_zeros()))
}

fn first_bit(set: u64, from: i64) -> Option<i64> {
    let above = set & (u64::MAX << from);
    (above != 0).then(|| i64::from(above.trailing_zeros()))
}

fn date_of(local: Seconds) -> Option<Date> {
    Some(Offset::UTC.to_datetime(Timestamp::from_second(local).ok()?).date())
}

fn start_of(date: Date) -> Option<Seconds> {
    Some(Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_second())
}

/// The words of a text, each with its column.
fn words(text: &str) -> Vec<(usize, &str)> {
    let column = |part: &str| text[..part.as_ptr() as usize - text.as_ptr() as usize].chars().count() + 1;
    text.split_whitespace().map(|part| (column(part), part)).collect()
}

fn named(name: &str) -> Option<&'static str> {
    Some(match name {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        _ => return None,
    })
}

fn unknown_name(name: &str) -> String {
    format!("`{name}` is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually")
}

impl Field {
    /// The values of a field as a bit set, and whether the field is a star without a step. An error carries its offset
    /// in the text.
    fn parse(&self, text: &str) -> Result<(u64, bool), (usize, String)> {
        let mut set = 0;
        let mut all = false;
        let mut offset = 0;
        for part in text.split(',') {
            let (values, whole) = self.parse_part(part).map_err(|(at, message)| (offset + at, message))?;
            set |= values;
            all |= whole;
            offset += part.chars().count() + 1;
        }
        Ok((set, all))
    }

    fn parse_part(&self, part: &str) -> Result<(u64, bool), (usize, String)> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let step_at = range.chars().count() + 1;
        let every = match step.map(str::parse::<u32>) {
            None => 1,
            Some(Ok(every)) if (1..=self.last.max(1)).contains(&every) => every,
            Some(_) => {
                let step = step.unwrap_or_default();
                return Err((step_at, format!("`{step}` is not a step for the {}", self.name)));
            }
        };
        // Seven is a second name of Sunday, not the day after Saturday.
        let full = if self.last == 7 { 6 } else { self.last };
        let (first, last) = if matches!(range, "*" | "?") {
            (self.first, full)
        } else if let Some((first, last)) = range.split_once('-') {
            (self.value(first, 0)?, self.value(last, first.chars().count() + 1)?)
        } else {
            let first = self.value(range, 0)?;
            (first, if step.is_some() { full.max(first) } else { first })
        };
        if first > last {
            return Err((0, format!("the range `{range}` of the {} ends before it starts", self.name)));
        }
        let set = (first..=last).step_by(every as usize).fold(0, |set, value| set | 1_u64 << value);
        Ok((set, matches!(range, "*" | "?") && every == 1))
    }

    fn value(&self, text: &str, offset: usize) -> Result<u32, (usize, String)> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match named {
            Some(index) => Some(index as u32 + self.first),
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        value.filter(|value| (self.first..=self.last).contains(value)).ok_or_else(|| {
            let (first, last) = (self.first, self.last);
            (offset, format!("`{text}` is not valid for the {}, which goes from {first} to {last}", self.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Seconds {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    fn text(seconds: Option<Seconds>) -> String {
        seconds.map_or("never".to_owned(), |seconds| Timestamp::from_second(seconds).unwrap().to_string())
    }

    /// The expressions are matched from this Monday on.
    const NOW: &str = "2026-03-02T10:07:30Z";

    #[test]
    fn hits_around_a_time() {
        for (cron, last, next) in [
            ("* * * * *", "2026-03-02T10:07:00Z", "2026-03-02T10:08:00Z"),
            ("*/15 * * * *", "2026-03-02T10:00:00Z", "2026-03-02T10:15:00Z"),
            ("5/20 * * * *", "2026-03-02T10:05:00Z", "2026-03-02T10:25:00Z"),
            ("0 9-17/4 * * mon-fri", "2026-03-02T09:00:00Z", "2026-03-02T13:00:00Z"),
            ("30 8,20 * * *", "2026-03-02T08:30:00Z", "2026-03-02T20:30:00Z"),
            ("0 0 * * 7", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"),
            ("0 0 * * 5-7", "2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"),
            ("0 0 * * SUN", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"),
            ("0 0 ? Feb,Apr ?", "2026-02-28T00:00:00Z", "2026-04-01T00:00:00Z"),
            ("0 0 29 2 *", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"),
            ("@hourly", "2026-03-02T10:00:00Z", "2026-03-02T11:00:00Z"),
            ("@daily", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"),
            ("@midnight", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"),
            ("@weekly", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"),
            ("@monthly", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@annually", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            // Both days restricted: either will do.
            ("0 0 15 * wed", "2026-02-25T00:00:00Z", "2026-03-04T00:00:00Z"),
            ("0 0 31 2 wed", "2026-02-25T00:00:00Z", "2027-02-03T00:00:00Z"),
            // A step is a restriction, a plain star is not.
            ("0 0 */2 * wed", "2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z"),
            ("0 0 15 * *", "2026-02-15T00:00:00Z", "2026-03-15T00:00:00Z"),
        ] {
            let parsed = Cron::parse(cron).unwrap();
            let now = at(NOW);
            assert_eq!(text(parsed.last_hit(i64::MIN, now)), last, "last of {cron}");
            assert_eq!(text(parsed.next_hit(now, i64::MAX)), next, "next of {cron}");
        }
    }

    #[test]
    fn bounds_are_kept() {
        let cron = Cron::parse("0 12 * * *").unwrap();
        let noon = at("2026-03-02T12:00:00Z");
        assert_eq!(cron.last_hit(noon, noon + 5), Some(noon));
        assert_eq!(cron.last_hit(noon + 1, noon + 5), None);
        assert_eq!(cron.next_hit(noon, noon + 1), Some(noon));
        assert_eq!(cron.next_hit(noon + 1, noon + 86_400), None);
        assert_eq!(cron.last_hit(i64::MIN, i64::MIN), None);
        assert_eq!(cron.next_hit(i64::MAX, i64::MAX), None);
    }

    #[test]
    fn a_leap_day_is_found_over_the_century() {
        let cron = Cron::parse("0 0 29 2 *").unwrap();
        assert_eq!(text(cron.next_hit(at("2096-03-01T00:00:00Z"), i64::MAX)), "2104-02-29T00:00:00Z");
        assert_eq!(text(cron.last_hit(i64::MIN, at("2104-02-28T00:00:00Z"))), "2096-02-29T00:00:00Z");
    }

    #[test]
    fn mistakes_are_pointed_at() {
        for (cron, expected) in [
            ("", "the schedule is empty, at column 1"),
            ("* * *", "the month is missing, a schedule has five fields, at column 6"),
            ("0 0 * * * *", "`*` is a sixth field, a schedule has five, at column 11"),
            ("60 * * * *", "`60` is not valid for the minute, which goes from 0 to 59, at column 1"),
            ("0  24 * * *", "`24` is not valid for the hour, which goes from 0 to 23, at column 4"),
            ("0 0 1,32 * *", "`32` is not valid for the day of the month, which goes from 1 to 31, at column 7"),
            ("0 0 0 * *", "`0` is not valid for the day of the month, which goes from 1 to 31, at column 5"),
            ("0 0 * jan-fop *", "`fop` is not valid for the month, which goes from 1 to 12, at column 11"),
            ("0 0 * * 8", "`8` is not valid for the day of the week, which goes from 0 to 7, at column 9"),
            ("0 17-9 * * *", "the range `17-9` of the hour ends before it starts, at column 3"),
            ("*/0 * * * *", "`0` is not a step for the minute, at column 3"),
            ("*/x * * * *", "`x` is not a step for the minute, at column 3"),
            ("-1 * * * *", "`` is not valid for the minute, which goes from 0 to 59, at column 1"),
            ("+1 * * * *", "`+1` is not valid for the minute, which goes from 0 to 59, at column 1"),
            ("1,,2 * * * *", "`` is not valid for the minute, which goes from 0 to 59, at column 3"),
            ("0 0 30 2 *", "none of these months has such a day, at column 5"),
            ("0 0 31 4,6,9,11 ?", "none of these months has such a day, at column 5"),
            ("@every 5m", "nothing may follow `@every`, at column 8"),
            (
                "@never",
                "`@never` is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually, at column 1",
            ),
        ] {
            let error = Cron::parse(cron).unwrap_err().to_string();
            assert_eq!(error, format!("{expected} of `{cron}`"));
        }
    }
}
