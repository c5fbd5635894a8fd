//! Faults of the loader, of a codec and of the store have the smallest possible effect.

mod classes;
mod down;
mod lifetimes;
mod loads;
mod others;
mod stores;

use bellwether::ErrorClass;

/// Of the errors of a source, the one that says that the source failed.
#[allow(clippy::ptr_arg, reason = "it is the type of the errors")]
fn class_of(failure: &str) -> ErrorClass {
    match failure.contains("failed") {
        true => ErrorClass::SourceFailure,
        false => ErrorClass::Failure,
    }
}
