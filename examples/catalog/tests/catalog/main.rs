//! The example `catalog`: what its processes answer, its page in a real browser, and what a real
//! Prometheus makes of its metrics with the dashboard and the rules of the folder `observability`.

mod api;
mod browser;
mod changes;
mod dashboard;
mod exporter;
mod faults;
mod locks;
mod page;
mod prometheus;
mod rules;
mod server;
