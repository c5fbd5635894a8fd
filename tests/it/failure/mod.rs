//! A fault stays as small as it can: of the loader, of a capture, of the store.

mod down;
mod lifetimes;
mod loads;
mod others;
mod stores;
