//! GPU code in a lesson: run where there is a GPU, else shown as it was recorded.

use super::Lesson;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::results;
use serde_json::Value;

impl Lesson {
    /// Runs `work` on the GPU and gives what it returns. Without a GPU, prints what this very cell printed in the
    /// recorded run, found by `title`, and gives `None`.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn on_gpu<T>(&self, title: &str, work: impl FnOnce(&Gpu) -> Result<T>) -> Result<Option<T>> {
        match &self.gpu {
            Some(gpu) => work(gpu).map(Some),
            None => {
                self.replay(title);
                Ok(None)
            }
        }
    }

    fn replay(&self, title: &str) {
        let path = results::recorded_file(results::REFERENCE).with_file_name(format!("{}.ipynb", self.name));
        let found = std::fs::read_to_string(&path).ok().and_then(|text| printed_by(&text, title));
        match found {
            Some(text) => {
                println!("recorded on {}:", self.recorded_on());
                text.lines().for_each(|line| println!("│ {line}"));
            }
            None => println!(
                "No GPU here, and the recorded run of `{}` has no output of the step `{title}`.\n\
                 next: go on with the next cell, or run this one on a machine with a GPU",
                self.name
            ),
        }
    }
}

/// What the cell with `on_gpu("title"` printed, in a notebook that was executed.
fn printed_by(notebook: &str, title: &str) -> Option<String> {
    let notebook: Value = serde_json::from_str(notebook).ok()?;
    let wanted = format!("on_gpu(\"{title}\"");
    let cell = notebook["cells"].as_array()?.iter().find(|cell| text_of(&cell["source"]).contains(&wanted))?;
    let printed: String = cell["outputs"]
        .as_array()?
        .iter()
        .filter(|output| output["output_type"] == "stream")
        .map(|output| text_of(&output["text"]))
        .collect();
    (!printed.trim().is_empty()).then_some(printed)
}

/// Notebooks keep text as one string or as a list of lines.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::printed_by;

    #[test]
    fn finds_the_cell_by_its_title_and_keeps_only_what_was_printed() {
        let notebook = r#"{"cells": [
            {"source": "lesson.on_gpu(\"one\", …", "outputs": [{"output_type": "stream", "text": "first\n"}]},
            {"source": ["x\n", "lesson.on_gpu(\"two\", …"], "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]},
                {"output_type": "display_data", "data": {"text/plain": "c"}}]},
            {"source": "lesson.on_gpu(\"three\", …", "outputs": []}]}"#;
        assert_eq!(printed_by(notebook, "one").unwrap(), "first\n");
        assert_eq!(printed_by(notebook, "two").unwrap(), "a\nb\n");
        assert_eq!(printed_by(notebook, "three"), None);
        assert_eq!(printed_by(notebook, "four"), None);
        assert_eq!(printed_by("no notebook", "one"), None);
    }
}
