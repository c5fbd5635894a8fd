//! The tool, run as operators run it, on real servers of all four kinds.

mod doctor;
mod follow;
mod kinds;
mod mistakes;
mod place;
mod targets;
