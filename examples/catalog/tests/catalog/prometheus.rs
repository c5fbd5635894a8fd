//! What a Prometheus knows.

use std::path::{Path, PathBuf};

use axum::http::Method;
use serde_json::Value;

use crate::server::ask;

/// How often something is looked at that is to come about. Each time takes a second and more.
pub(crate) const LOOKS: usize = 120;

/// A file of the folder `observability`.
pub(crate) fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../observability").join(name)
}

/// The result of a query. An error is a text.
pub(crate) async fn query(prometheus: &str, expression: &str) -> Result<Vec<Value>, String> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let url = format!("{prometheus}/api/v1/query?query={encoded}");
    let answer = ask(Method::GET, &url, "").await.json;
    match answer["data"]["result"].as_array() {
        Some(result) => Ok(result.clone()),
        None => Err(answer["error"].to_string()),
    }
}

/// The value of a series in a result, if it is a number.
pub(crate) fn number(series: &Value) -> Option<f64> {
    let value = series["value"][1].as_str()?.parse::<f64>().ok()?;
    (!value.is_nan()).then_some(value)
}
