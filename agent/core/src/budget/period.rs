//! Periods of budgets: days, weeks and months of a time zone.
//!
//! Owns: where they begin and end, daylight saving time included. Refuses: the clock; the time comes from the caller.
//! The time zones are compiled in, so that every host has them and the same ones.

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp, ToSpan as _};
use std::fmt;
use std::sync::OnceLock;

/// How long a budget lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first of a month to the first of the next.
    Month,
}

impl Period {
    /// Every period.
    pub const ALL: [Period; 3] = [Period::Day, Period::Week, Period::Month];

    /// Its name in configurations and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
        }
    }

    fn span(self) -> Span {
        match self {
            Period::Day => 1.day(),
            Period::Week => 1.week(),
            Period::Month => 1.month(),
        }
    }

    fn first(self, day: Date) -> Date {
        match self {
            Period::Day => day,
            Period::Week => {
                let since_monday = i64::from(day.weekday().to_monday_zero_offset());
                day.saturating_sub(since_monday.days())
            }
            Period::Month => day.first_of_month(),
        }
    }
}

/// The seconds of one period, in Unix time: `start` included, `end` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First second.
    pub start: i64,
    /// First second of the next period.
    pub end: i64,
}

impl Bounds {
    /// Whether `now` is within.
    pub fn contain(&self, now: i64) -> bool {
        (self.start..self.end).contains(&now)
    }
}

/// A time zone by its IANA name.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Default for Zone {
    fn default() -> Zone {
        Zone {
            name: "UTC".to_owned(),
            zone: TimeZone::UTC,
        }
    }
}

fn database() -> &'static TimeZoneDatabase {
    static BUNDLED: OnceLock<TimeZoneDatabase> = OnceLock::new();
    BUNDLED.get_or_init(TimeZoneDatabase::bundled)
}

/// Nine thousand years from 1970 on: what the calendar can do, with room for a period at its end.
const LAST: i64 = 250_000_000_000;

impl Zone {
    /// The zone of an IANA name, as in `Europe/Berlin`.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Zone, String> {
        let zone = database().get(name).map_err(|_| {
            format!("time_zone {name:?} is not known: write an IANA name, as in \"Europe/Berlin\" or \"UTC\"")
        })?;
        Ok(Zone {
            name: zone.iana_name().unwrap_or(name).to_owned(),
            zone,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The period that a moment is in.
    pub fn bounds(&self, period: Period, now: i64) -> Bounds {
        let now = now.clamp(0, LAST);
        self.try_bounds(period, now).unwrap_or_else(|| {
            // A day of UTC, which needs no calendar.
            let start = now - now.rem_euclid(86_400);
            Bounds {
                start,
                end: start + 86_400,
            }
        })
    }

    fn try_bounds(&self, period: Period, now: i64) -> Option<Bounds> {
        let day = Timestamp::from_second(now)
            .ok()?
            .to_zoned_datetime(self.zone.clone())
            .date();
        let first = period.first(day);
        let second = |day: Date| {
            Some(
                day.to_zoned_datetime(self.zone.clone())
                    .ok()?
                    .timestamp()
                    .as_second(),
            )
        };
        Some(Bounds {
            start: second(first)?,
            end: second(first.checked_add(period.span()).ok()?)?,
        })
    }

    /// A moment for people, to the minute: `2026-11-30 14:05 CET`.
    pub fn show(&self, unix: i64) -> String {
        Timestamp::from_second(unix).map_or_else(
            |_| "never".to_owned(),
            |moment| {
                let local = moment.to_zoned_datetime(self.zone.clone());
                local.strftime("%Y-%m-%d %H:%M %Z").to_string()
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_those_of_the_calendar() {
        let unix = |text: &str| text.parse::<jiff::Timestamp>().expect("a time").as_second();
        for (zone, period, now, start, end) in [
            (
                "UTC",
                Period::Day,
                "2026-11-30T10:00:00Z",
                "2026-11-30T00:00:00Z",
                "2026-12-01T00:00:00Z",
            ),
            (
                "UTC",
                Period::Day,
                "2026-11-30T00:00:00Z",
                "2026-11-30T00:00:00Z",
                "2026-12-01T00:00:00Z",
            ),
            (
                "UTC",
                Period::Week,
                "2026-11-29T23:59:59Z",
                "2026-11-23T00:00:00Z",
                "2026-11-30T00:00:00Z",
            ),
            (
                "UTC",
                Period::Month,
                "2028-02-29T12:00:00Z",
                "2028-02-01T00:00:00Z",
                "2028-03-01T00:00:00Z",
            ),
            (
                "Asia/Kolkata",
                Period::Day,
                "2026-11-30T18:29:59Z",
                "2026-11-29T18:30:00Z",
                "2026-11-30T18:30:00Z",
            ),
            // Days of 23 and 25 hours.
            (
                "Europe/Berlin",
                Period::Day,
                "2026-03-29T10:00:00Z",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                "Europe/Berlin",
                Period::Day,
                "2026-10-25T10:00:00Z",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
            ),
            (
                "Europe/Berlin",
                Period::Month,
                "2026-10-31T22:59:59Z",
                "2026-09-30T22:00:00Z",
                "2026-10-31T23:00:00Z",
            ),
            // A day whose midnight does not exist begins when it does.
            (
                "America/Santiago",
                Period::Day,
                "2026-09-06T12:00:00Z",
                "2026-09-06T04:00:00Z",
                "2026-09-07T03:00:00Z",
            ),
        ] {
            let bounds = Zone::named(zone).expect("a zone").bounds(period, unix(now));
            assert_eq!(
                (bounds.start, bounds.end),
                (unix(start), unix(end)),
                "{zone} {period:?} {now}"
            );
            assert!(bounds.contain(unix(now)));
        }
        assert_eq!(
            Zone::named("europe/berlin").expect("any case").name(),
            "Europe/Berlin"
        );
        assert_eq!(
            Zone::named("Europe/Berlin")
                .expect("a zone")
                .show(unix("2026-11-30T10:00:59Z")),
            "2026-11-30 11:00 CET"
        );
    }
}
