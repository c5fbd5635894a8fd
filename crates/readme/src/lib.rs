#![doc = include_str!("../../../README.md")]

#[doc = include_str!("../../http/README.md")]
mod http {}

#[doc = include_str!("../../grpc/README.md")]
mod grpc {}

#[doc = include_str!("../../lock/README.md")]
mod lock {}

#[doc = include_str!("../../opentelemetry/README.md")]
mod opentelemetry {}

#[doc = include_str!("../../../src/guide/observability.md")]
mod guide_observability {}
