//! Faults of the loader, of a codec and of the store have the smallest possible effect.

mod down;
mod lifetimes;
mod loads;
mod others;
mod stores;
