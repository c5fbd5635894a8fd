//! Fuzz tests: any requests and responses, for the rules alone and for the whole layer.

mod grammar;
mod layer;
mod rules;
