//! Records of failures: the stored bytes of a failure.
//!
//! ```text
//! BWF 2 | cause | times, 4 | cooldown, 8 | window, 8 | life, 8 | message
//! ```
//! Numbers are big-endian, and times are in milliseconds. The scripts read all fields except the
//! cause and the message. The age of a record is its life minus its remaining life. Marks may follow,
//! after a zero byte: of processes that wait for the end of the cooldown. The scripts take them off.

use std::str;
use std::time::Duration;

use bytes::{Buf, BufMut};

use super::scripts::LONGEST_MS;
use bellwether::FailureCause;
use bellwether::adapter::millis;
use bellwether::store::Failure;

pub(super) fn write(failure: &Failure) -> Vec<u8> {
    let cause = match failure.cause {
        FailureCause::TimedOut => 2,
        FailureCause::Panicked => 3,
        _ => 1,
    };
    let mut record = Vec::with_capacity(HEADER + failure.message.len());
    record.put_slice(MAGIC);
    record.put_u8(cause);
    record.put_u32(failure.times);
    for time in [failure.cooldown, failure.window, failure.life] {
        record.put_u64(millis(time).min(LONGEST_MS));
    }
    record.put_slice(failure.message.as_bytes());
    record
}

pub(super) fn read(record: &[u8]) -> Option<Failure> {
    let (mut header, message) = record.split_at_checked(HEADER)?;
    header = header.strip_prefix(MAGIC)?;
    let cause = match header.get_u8() {
        2 => FailureCause::TimedOut,
        3 => FailureCause::Panicked,
        _ => FailureCause::Error,
    };
    let times = header.get_u32();
    let [cooldown, window, life] = [(); 3].map(|()| Duration::from_millis(header.get_u64()));
    let message = str::from_utf8(message).unwrap_or_default();
    let failure = Failure::new(cause, times, window);
    Some(failure.with_cooldown(cooldown).with_life(life).with_message(message))
}

const MAGIC: &[u8] = b"BWF\x02";

const HEADER: usize = 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for cause in [FailureCause::Error, FailureCause::TimedOut, FailureCause::Panicked] {
            let [cooldown, window, life] = [1, 30, 90].map(Duration::from_secs);
            let failure = Failure::new(cause, 7, window).with_cooldown(cooldown).with_life(life);
            let failure = failure.with_message("no route: ö");
            assert_eq!(read(&write(&failure)), Some(failure));
        }
    }

    #[test]
    fn the_bytes_of_a_record_do_not_change() {
        let [cooldown, window, life] = [200, 4_000, 34_000].map(Duration::from_millis);
        let failure = Failure::new(FailureCause::TimedOut, 3, window).with_cooldown(cooldown);
        let written = write(&failure.with_life(life).with_message("late"));
        let (head, rest) = written.split_at(9);
        assert_eq!(head, b"BWF\x02\x02\0\0\0\x03");
        assert_eq!(&rest[..16], b"\0\0\0\0\0\0\0\xc8\0\0\0\0\0\0\x0f\xa0");
        assert_eq!(&rest[16..], b"\0\0\0\0\0\0\x84\xd0late");
    }

    #[test]
    fn what_is_cut_short_is_no_record() {
        let record = write(&Failure::new(FailureCause::Error, 1, Duration::from_secs(1)));
        assert!((0..record.len()).all(|end| read(&record[..end]).is_none()));
    }

    #[test]
    fn a_message_that_is_no_text_is_left_out() {
        let mut record = write(&Failure::new(FailureCause::Error, 1, Duration::from_secs(1)));
        record.extend([0xff, 0xfe]);
        assert_eq!(read(&record).as_ref().map(|failure| &*failure.message), Some(""));
    }
}
