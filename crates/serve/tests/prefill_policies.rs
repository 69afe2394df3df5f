//! The tables of docs/serving.md are what the simulator says of the recorded steps.

#[path = "../examples/prefill_policies/table.rs"]
mod table;

use std::path::Path;

#[test]
fn the_page_has_the_tables_that_the_recorded_steps_give() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/serving.md")).unwrap();
    let tables = table::tables(&root.join("results/h200")).unwrap();
    for line in tables.lines() {
        assert!(page.contains(line), "docs/serving.md lacks a line; run the example prefill_policies:\n{line}");
    }
}
