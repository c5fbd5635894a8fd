//! A fault stays as small as it can: of the loader, of a capture, of the store.

mod down;
mod loads;
mod others;
mod stores;
mod windows;
