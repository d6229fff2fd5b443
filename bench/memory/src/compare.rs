//! The comparison: every row, as one JSON object.

use serde_json::{Value, json};

use crate::{arenas, handles, metadata, service};

/// Live chunks of the rows.
pub(crate) const LOADS: [usize; 3] = [1_000, 100_000, 1_000_000];

/// Measures everything.
pub fn all() -> Value {
    let rows = [arenas::rows(&LOADS), service::rows(&LOADS), handles::rows(&LOADS)];
    let rows: Vec<Value> = rows.iter().flatten().map(|row| row.json()).collect();
    json!({ "rows": rows, "metadata": metadata::rows(&LOADS) })
}
