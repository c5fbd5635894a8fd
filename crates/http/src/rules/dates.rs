//! Dates in the three forms that a recipient accepts (RFC 9110, section 5.6.7).

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

const A_DAY: i64 = 24 * 60 * 60;

/// Fifty years of 365.2425 days.
const FIFTY_YEARS: Duration = Duration::from_secs(50 * 31_556_952);

/// Parses a date. The clock of this machine decides about the century of a two-digit year.
///
/// Case does not matter, and a wrong weekday is ignored. The zone must be `GMT` (RFC 9111, section
/// 4.2).
pub(super) fn parse(date: &str) -> Option<SystemTime> {
    parse_at(date, SystemTime::now)
}

fn parse_at(date: &str, now: impl FnOnce() -> SystemTime) -> Option<SystemTime> {
    let date = date.trim().to_ascii_lowercase();
    match date.split_once(", ") {
        Some((weekday, rest)) if rest.contains('-') => rfc_850(weekday, rest, now),
        Some((weekday, rest)) => imf_fixdate(weekday, rest),
        None => asctime(&date),
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(weekday: &str, rest: &str) -> Option<SystemTime> {
    let [day, month, year, time, zone] = words(rest)?;
    let is_one = is_short_weekday(weekday) && zone == "gmt";
    is_one.then(|| moment(number(year, 4)?, month, number(day, 2)?, time)).flatten()
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc_850(weekday: &str, rest: &str, now: impl FnOnce() -> SystemTime) -> Option<SystemTime> {
    let [date, time, zone] = words(rest)?;
    let mut parts = date.split('-');
    let day = parts.next()?;
    let month = parts.next()?;
    let year = parts.next()?;
    if parts.next().is_some() || !WEEKDAYS.contains(&weekday) || zone != "gmt" {
        return None;
    }
    let year = number(year, 2)?;
    let day = number(day, 2)?;
    let of_century = |century: i64| moment(century * 100 + year, month, day, time);
    let now = now();
    let this = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let century = year_of(this) / 100;
    // The latest such year that is at most 50 years ahead.
    let latest = now.checked_add(FIFTY_YEARS)?;
    let found = [century + 1, century, century - 1].into_iter().filter_map(of_century);
    found.into_iter().find(|date| *date <= latest)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(date: &str) -> Option<SystemTime> {
    let (weekday, rest) = date.split_once(' ')?;
    let (month, rest) = rest.split_once(' ')?;
    // The day has two characters, of which the first may be blank.
    let day = rest.get(..2)?;
    let rest = rest.get(2..)?.strip_prefix(' ')?;
    let day = day.strip_prefix(' ').map_or_else(|| number(day, 2), |day| number(day, 1))?;
    let (time, year) = rest.split_once(' ')?;
    is_short_weekday(weekday).then(|| moment(number(year, 4)?, month, day, time)).flatten()
}

/// Splits a text into exactly this many words, separated by one blank each.
fn words<const N: usize>(text: &str) -> Option<[&str; N]> {
    text.split(' ').collect::<Vec<_>>().try_into().ok()
}

fn is_short_weekday(word: &str) -> bool {
    word.len() == 3 && WEEKDAYS.iter().any(|weekday| weekday.starts_with(word))
}

fn number(digits: &str, places: usize) -> Option<i64> {
    let is_number = digits.len() == places && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The moment that a date and a time of day (`08:49:37`) name.
fn moment(year: i64, month: &str, day: i64, time: &str) -> Option<SystemTime> {
    let month = MONTHS.iter().position(|name| *name == month)?;
    let mut parts = time.split(':').map(|part| number(part, 2));
    let hour = parts.next()??;
    let minute = parts.next()??;
    let second = parts.next()??;
    // 60 is a leap second.
    let is_time = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    if !is_time || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let seconds = (first_of(year, month) + day - 1) * A_DAY + hour * 3_600 + minute * 60 + second;
    let away = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    if seconds < 0 { epoch.checked_sub(away) } else { epoch.checked_add(away) }
}

fn days_of(year: i64, month: usize) -> i64 {
    let (year_after, month_after) = if month == 11 { (year + 1, 0) } else { (year, month + 1) };
    first_of(year_after, month_after) - first_of(year, month)
}

/// The first day of a month, in days since 1 January 1970.
fn first_of(year: i64, month: usize) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let past = year - 1;
    let leap_days = past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400) - 477;
    (year - 1970) * 365 + leap_days + BEFORE[month] + i64::from(is_leap && month > 1)
}

fn year_of(seconds: u64) -> i64 {
    let days = i64::try_from(seconds).unwrap_or_default() / A_DAY;
    // This is off by a year or so at the turn of a year; the 50-year rule tolerates that.
    1970 + days * 400 / 146_097
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(date: &str) -> Option<u64> {
        let date = parse_at(date, || SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_700_000))?;
        Some(date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    #[test]
    fn all_three_forms_are_read() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "SUN, 06 NOV 1994 08:49:37 gmt",
            // The weekday is wrong, and is ignored.
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Thu Nov  6 08:49:37 1994",
        ] {
            assert_eq!(at(date), Some(784_111_777), "{date}");
        }
    }

    #[test]
    fn it_reads_what_is_written() {
        for days in 0..80_000 {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + 12_345);
            assert_eq!(parse(&httpdate::fmt_http_date(time)), Some(time), "{days}");
        }
    }

    #[test]
    fn a_year_of_two_digits_is_at_most_fifty_years_ahead() {
        // It is November 2025.
        for (date, year) in [
            ("Thursday, 18-Aug-50 02:01:18 GMT", 2050),
            ("Sunday, 18-Aug-75 02:01:18 GMT", 2075),
            ("Thursday, 18-Dec-75 02:01:18 GMT", 1975),
            ("Wednesday, 18-Aug-76 02:01:18 GMT", 1976),
            ("Wednesday, 18-Aug-99 02:01:18 GMT", 1999),
            ("Friday, 18-Aug-00 02:01:18 GMT", 2000),
        ] {
            let full = format!("{} {year} 02:01:18 GMT", &date[date.len() - 22..][..6]);
            let full = format!("Mon, {}", full.replace('-', " ").trim());
            assert_eq!(at(date), at(&full), "{date} {full}");
            assert!(at(date).is_some());
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for date in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov  1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1995 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov é 08:49:37 1994",
        ] {
            assert_eq!(at(date), None, "{date}");
        }
    }

    #[test]
    fn a_date_before_1970_is_one() {
        assert!(
            parse("Mon, 01 Jan 1900 00:00:00 GMT")
                .is_some_and(|date| date < SystemTime::UNIX_EPOCH)
        );
        assert!(
            parse("Sat, 01 Jan 0000 00:00:00 GMT").is_none_or(|date| date < SystemTime::UNIX_EPOCH)
        );
    }
}
