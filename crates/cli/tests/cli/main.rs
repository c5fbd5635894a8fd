//! The tool, run as operators run it, on real servers of all four kinds.

mod changes;
mod doctor;
mod follow;
mod kinds;
mod known_keys;
mod mistakes;
mod place;
mod targets;
