//! Records of failures: the bytes that are remembered of one.
//!
//! ```text
//! BWF 1 | cause | times, 4 | window in ms, 8 | message
//! ```
//! Numbers are big-endian. The scripts read the times and the window.

use std::str;
use std::time::Duration;

use crate::store::{Cause, Failure};

pub(super) fn write(failure: &Failure) -> Vec<u8> {
    let cause = match failure.cause() {
        Cause::Error => 1,
        Cause::TimedOut => 2,
        Cause::Panicked => 3,
    };
    let window = u64::try_from(failure.window().as_millis()).unwrap_or(u64::MAX);
    let mut record = Vec::with_capacity(HEADER + failure.message().len());
    record.extend_from_slice(MAGIC);
    record.push(cause);
    record.extend_from_slice(&failure.times().to_be_bytes());
    record.extend_from_slice(&window.to_be_bytes());
    record.extend_from_slice(failure.message().as_bytes());
    record
}

pub(super) fn read(record: &[u8]) -> Option<Failure> {
    let rest = record.strip_prefix(MAGIC)?;
    let ([cause], rest) = rest.split_first_chunk()?;
    let (times, rest) = rest.split_first_chunk()?;
    let (window, message) = rest.split_first_chunk()?;
    let cause = match cause {
        2 => Cause::TimedOut,
        3 => Cause::Panicked,
        _ => Cause::Error,
    };
    let window = Duration::from_millis(u64::from_be_bytes(*window));
    let message = str::from_utf8(message).unwrap_or_default();
    Some(Failure::new(cause, u32::from_be_bytes(*times), window).saying(message))
}

const MAGIC: &[u8] = b"BWF\x01";

const HEADER: usize = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for cause in [Cause::Error, Cause::TimedOut, Cause::Panicked] {
            let failure = Failure::new(cause, 7, Duration::from_secs(30)).saying("no route: ö");
            assert_eq!(read(&write(&failure)), Some(failure));
        }
    }

    #[test]
    fn the_bytes_of_a_record_do_not_change() {
        let failure = Failure::new(Cause::TimedOut, 3, Duration::from_millis(4000)).saying("late");
        assert_eq!(write(&failure), b"BWF\x01\x02\0\0\0\x03\0\0\0\0\0\0\x0f\xa0late");
    }

    #[test]
    fn what_is_cut_short_is_no_record() {
        let record = write(&Failure::new(Cause::Error, 1, Duration::from_secs(1)));
        assert!((0..record.len()).all(|end| read(&record[..end]).is_none()));
    }

    #[test]
    fn a_message_that_is_no_text_is_left_out() {
        let mut record = write(&Failure::new(Cause::Error, 1, Duration::from_secs(1)));
        record.extend([0xff, 0xfe]);
        assert_eq!(read(&record).as_ref().map(Failure::message), Some(""));
    }
}
