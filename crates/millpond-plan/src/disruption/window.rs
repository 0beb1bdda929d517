//! When a budget is active: from each match of its cron expression, on the clock of a time zone, for its duration.
//!
//! Between two clock changes, the local time of a zone is a clock without jumps, which [`Cron`] can match. A time that
//! occurs twice, when clocks go back, matches twice. A time that is left out, when clocks go forward, matches at the
//! moment of the change, so a window that starts at half past two also starts on that day. Schedules that match every
//! hour lose nothing by the change and have no such match.
//!
//! Time zones come from the IANA database that is compiled in; nothing is read from the machine.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, tz::Offset};

use super::cron::{Cron, CronError};
use crate::model::{Schedule, Seconds};

/// Limit on the matches followed that prolong a window, before the window counts as endless. Covers a week of a budget
/// that is renewed every minute.
const MAX_RENEWALS: usize = 10_000;

/// A parsed schedule.
#[derive(Debug, Clone)]
pub struct Window {
    cron: Cron,
    zone: TimeZone,
    duration: Seconds,
}

/// Why a schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The cron expression is invalid.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The time zone is unknown.
    #[error("`{0}` is not a time zone of the IANA database")]
    Zone(String),
    /// The duration is not positive.
    #[error("a window of {0} seconds never holds")]
    Duration(Seconds),
}

impl Window {
    /// Parses a schedule.
    pub fn new(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let cron = Cron::parse(&schedule.cron)?;
        let zone = match schedule.time_zone.as_deref() {
            None | Some("") => TimeZone::UTC,
            Some(name) => zone(name).ok_or_else(|| ScheduleError::Zone(name.to_owned()))?,
        };
        if schedule.duration <= 0 {
            return Err(ScheduleError::Duration(schedule.duration));
        }
        Ok(Self { cron, zone, duration: schedule.duration })
    }

    /// Whether the window is active: the schedule matched within the last duration. The end of the duration is
    /// excluded.
    pub fn holds(&self, now: Seconds) -> bool {
        self.started(now).is_some()
    }

    /// The next time after `now` at which the window becomes active or inactive; `None` if no such time is in sight.
    pub fn next_change(&self, now: Seconds) -> Option<Seconds> {
        let Some(mut hit) = self.started(now) else {
            return self.next_hit(now);
        };
        for _ in 0..MAX_RENEWALS {
            let end = hit.saturating_add(self.duration);
            match self.last_hit(hit, end) {
                Some(renewed) if renewed > hit => hit = renewed,
                _ => return Some(end),
            }
        }
        None
    }

    /// The match at which the active window started.
    fn started(&self, now: Seconds) -> Option<Seconds> {
        self.last_hit(now.saturating_sub(self.duration).saturating_add(1), now)
    }

    /// The last match from `floor` to `now`.
    fn last_hit(&self, floor: Seconds, now: Seconds) -> Option<Seconds> {
        let mut now = Timestamp::from_second(now).ok()?.as_second();
        while now >= floor {
            let moment = Timestamp::from_second(now).ok()?;
            let offset = seconds(self.zone.to_offset(moment));
            let change = self.zone.preceding(following_second(moment)?).next();
            let since = change.as_ref().map_or(i64::MIN, |change| change.timestamp().as_second());
            let hit = self.cron.last_hit(since.max(floor).saturating_add(offset), now + offset);
            if let Some(hit) = hit {
                return Some(hit - offset);
            }
            if since >= floor && self.skipped(since, offset) {
                return Some(since);
            }
            now = change?.timestamp().as_second() - 1;
        }
        None
    }

    /// The first match after `now`.
    fn next_hit(&self, now: Seconds) -> Option<Seconds> {
        let mut from = now.checked_add(1)?;
        let horizon = now.saturating_add(9 * 366 * 86_400);
        while from < horizon {
            let moment = Timestamp::from_second(from).ok()?;
            let offset = seconds(self.zone.to_offset(moment));
            if self.skipped(from, offset) {
                return Some(from);
            }
            let change = self.zone.following(moment).next().map(|change| change.timestamp().as_second());
            let until = change.unwrap_or(i64::MAX);
            if let Some(hit) = self.cron.next_hit(from + offset, until.saturating_add(offset)) {
                return Some(hit - offset);
            }
            from = change?;
        }
        None
    }

    /// Whether the clock change at this moment left out a match.
    fn skipped(&self, change: Seconds, after: i64) -> bool {
        let before = Timestamp::from_second(change - 1).map_or(after, |moment| seconds(self.zone.to_offset(moment)));
        !self.cron.every_hour() && self.cron.next_hit(change + before, change + after).is_some()
    }
}

fn zone(name: &str) -> Option<TimeZone> {
    // `Etc/Unknown` is the time zone crate's name for an unknown zone.
    TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown())
}

fn seconds(offset: Offset) -> i64 {
    i64::from(offset.seconds())
}

fn following_second(moment: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(moment.as_second() + 1).ok()
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

    fn window(cron: &str, zone: &str, duration: Seconds) -> Window {
        let time_zone = (!zone.is_empty()).then(|| zone.to_owned());
        Window::new(&Schedule { cron: cron.to_owned(), time_zone, duration }).unwrap()
    }

    #[test]
    fn it_holds_from_a_hit_until_the_duration_is_over() {
        let window = window("0 9 * * mon-fri", "", 8 * 3600);
        for (now, holds, change) in [
            ("2026-03-02T08:59:59Z", false, "2026-03-02T09:00:00Z"),
            ("2026-03-02T09:00:00Z", true, "2026-03-02T17:00:00Z"),
            ("2026-03-02T16:59:59Z", true, "2026-03-02T17:00:00Z"),
            ("2026-03-02T17:00:00Z", false, "2026-03-03T09:00:00Z"),
            ("2026-03-06T18:00:00Z", false, "2026-03-09T09:00:00Z"),
        ] {
            assert_eq!(window.holds(at(now)), holds, "at {now}");
            assert_eq!(text(window.next_change(at(now))), change, "from {now}");
        }
    }

    #[test]
    fn hits_prolong_each_other() {
        let daily = window("@daily", "", 36 * 3600);
        assert!(daily.holds(at("2026-03-02T23:00:00Z")));
        assert_eq!(daily.next_change(at("2026-03-02T23:00:00Z")), None);
        let days = window("0 0 1-3 * *", "", 86_400);
        assert_eq!(text(days.next_change(at("2026-03-01T05:00:00Z"))), "2026-03-04T00:00:00Z");
        let long = window("0 0 1 1 *", "", 400 * 86_400);
        assert!(long.holds(at("2026-12-31T00:00:00Z")));
    }

    #[test]
    fn clocks_of_time_zones() {
        let hour = 3600;
        // cron, zone, duration, moment, whether it holds, the next change
        for (cron, zone, duration, now, holds, change) in [
            // Winter and summer in Berlin.
            ("0 8 * * *", "Europe/Berlin", hour, "2026-01-15T07:30:00Z", true, "2026-01-15T08:00:00Z"),
            ("0 8 * * *", "Europe/Berlin", hour, "2026-07-15T06:30:00Z", true, "2026-07-15T07:00:00Z"),
            ("0 8 * * *", "Europe/Berlin", hour, "2026-07-15T07:30:00Z", false, "2026-07-16T06:00:00Z"),
            // 29 March 2026, 02:00 → 03:00 at 01:00Z: half past two hits at the change.
            ("30 2 * * *", "Europe/Berlin", 2 * hour, "2026-03-29T00:59:59Z", false, "2026-03-29T01:00:00Z"),
            ("30 2 * * *", "Europe/Berlin", 2 * hour, "2026-03-29T01:00:00Z", true, "2026-03-29T03:00:00Z"),
            ("30 2 * * *", "Europe/Berlin", 2 * hour, "2026-03-29T03:00:00Z", false, "2026-03-30T00:30:00Z"),
            // Two skipped hits are one, and three o'clock is the same moment.
            ("0,30 2,3 * * *", "Europe/Berlin", 600, "2026-03-29T00:30:00Z", false, "2026-03-29T01:00:00Z"),
            ("0,30 2,3 * * *", "Europe/Berlin", 600, "2026-03-29T01:00:00Z", true, "2026-03-29T01:10:00Z"),
            ("0,30 2,3 * * *", "Europe/Berlin", 600, "2026-03-29T01:10:00Z", false, "2026-03-29T01:30:00Z"),
            // Every hour: nothing was missed.
            ("30 * * * *", "Europe/Berlin", 600, "2026-03-29T01:00:00Z", false, "2026-03-29T01:30:00Z"),
            // 25 October 2026, 03:00 → 02:00 at 01:00Z: half past two comes twice.
            ("30 2 * * *", "Europe/Berlin", 600, "2026-10-25T00:30:00Z", true, "2026-10-25T00:40:00Z"),
            ("30 2 * * *", "Europe/Berlin", 600, "2026-10-25T00:40:00Z", false, "2026-10-25T01:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", 600, "2026-10-25T01:35:00Z", true, "2026-10-25T01:40:00Z"),
            ("30 2 * * *", "Europe/Berlin", 600, "2026-10-25T01:40:00Z", false, "2026-10-26T01:30:00Z"),
            // A window of eight hours by the wall: 02:30 to 10:30 in winter time.
            ("30 2 * * *", "Europe/Berlin", 8 * hour, "2026-10-25T09:29:59Z", true, "2026-10-25T09:30:00Z"),
            // New York: 8 March 2026 at 07:00Z, 1 November 2026 at 06:00Z.
            ("0 2 * * sun", "America/New_York", hour, "2026-03-08T07:00:00Z", true, "2026-03-08T08:00:00Z"),
            ("0 2 * * sun", "America/New_York", hour, "2026-03-08T06:59:00Z", false, "2026-03-08T07:00:00Z"),
            ("30 1 1 11 *", "America/New_York", hour, "2026-11-01T05:30:00Z", true, "2026-11-01T07:30:00Z"),
            ("30 1 1 11 *", "America/New_York", hour, "2026-11-01T07:30:00Z", false, "2027-11-01T05:30:00Z"),
            // Lord Howe changes by half an hour: 4 October 2026, 02:00 → 02:30 at 15:30Z of the third.
            ("15 2 * * *", "Australia/Lord_Howe", hour, "2026-10-03T15:29:00Z", false, "2026-10-03T15:30:00Z"),
            ("15 2 * * *", "Australia/Lord_Howe", hour, "2026-10-03T15:30:00Z", true, "2026-10-03T16:30:00Z"),
            // Back on 5 April 2026, 02:00 → 01:30 at 15:00Z of the fourth: a quarter to two comes twice.
            ("45 1 * * *", "Australia/Lord_Howe", 600, "2026-04-04T14:45:00Z", true, "2026-04-04T14:55:00Z"),
            ("45 1 * * *", "Australia/Lord_Howe", 600, "2026-04-04T14:56:00Z", false, "2026-04-04T15:15:00Z"),
            // No changes of clocks, half hours.
            ("0 0 * * *", "Asia/Kolkata", hour, "2026-05-01T18:30:00Z", true, "2026-05-01T19:30:00Z"),
            // A day that Samoa left out.
            ("0 12 30 12 *", "Pacific/Apia", hour, "2011-12-30T10:00:00Z", true, "2011-12-30T11:00:00Z"),
        ] {
            let window = window(cron, zone, duration);
            assert_eq!(window.holds(at(now)), holds, "{cron} in {zone} at {now}");
            assert_eq!(text(window.next_change(at(now))), change, "{cron} in {zone} from {now}");
        }
    }

    #[test]
    fn mistakes_are_reported() {
        let schedule = |cron: &str, zone: &str, duration| Schedule {
            cron: cron.to_owned(),
            time_zone: Some(zone.to_owned()),
            duration,
        };
        for (schedule, expected) in [
            (schedule("@daily", "Europe/Atlantis", 60), "`Europe/Atlantis` is not a time zone of the IANA database"),
            (schedule("@daily", "Etc/Unknown", 60), "`Etc/Unknown` is not a time zone of the IANA database"),
            (schedule("@daily", "UTC", 0), "a window of 0 seconds never holds"),
            (
                schedule("61 * * * *", "UTC", 60),
                "`61` is not valid for the minute, which goes from 0 to 59, at column 1 of `61 * * * *`",
            ),
        ] {
            assert_eq!(Window::new(&schedule).unwrap_err().to_string(), expected);
        }
        assert!(Window::new(&schedule("@daily", "", 60)).is_ok());
    }

    #[test]
    fn times_beyond_all_calendars_hold_nothing() {
        let window = window("@daily", "Europe/Berlin", 60);
        for now in [i64::MIN, i64::MAX] {
            assert!(!window.holds(now));
            assert_eq!(window.next_change(now), None);
        }
    }
}
