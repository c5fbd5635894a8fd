//! A cache in front of tonic services: what a caller sees, with and without it.

mod catalog;
mod counts;
mod deadline;
mod errors;
mod failure;
mod fleet;
mod foreign;
mod invalidate;
mod one_form;
mod passing;
mod raw;
mod same;
mod server;
mod sharing;
mod tags;
mod warnings;
