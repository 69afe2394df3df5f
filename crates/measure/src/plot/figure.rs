//! A finished figure, and the two forms that it is shown in.

use super::canvas::{FONTS, UNITS, WIDTH};
use crate::Error;
use crate::Result;
use std::path::Path;

/// A finished chart. As the last expression of a cell it shows itself; [`Figure::save`] writes it to a file.
///
/// It shows in two forms at once, and each viewer takes the one that it prefers: in the page (JupyterLab, HTML
/// exports) it takes the page's text colour and no background, so it fits light and dark themes; as a file or a
/// picture it has a white background of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    title: String,
    body: String,
    height: f64,
}

impl Figure {
    pub(super) fn new(title: &str, body: String, height: f64) -> Figure {
        Figure { title: escape(title), body, height }
    }

    fn open(&self, attributes: &str) -> String {
        let (width, height) = (WIDTH * UNITS, (self.height * UNITS).ceil());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"{FONTS}\" aria-label=\"{}\" {attributes}>\n",
            self.title
        )
    }

    /// The figure as an SVG document that stands alone: white background, dark text.
    pub fn svg(&self) -> String {
        let size = format!("width=\"{WIDTH}\" height=\"{}\" color=\"#1a1a1a\"", self.height.ceil());
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
        format!("{}{paper}{}</svg>\n", self.open(&size), self.body)
    }

    /// The figure as a piece of a page: the page's text colour, no background, as wide as there is room.
    pub fn html(&self) -> String {
        let color = "color:var(--jp-content-font-color1, inherit)";
        let svg = self.open("width=\"100%\" style=\"display:block;height:auto\"");
        format!(
            "<div class=\"gpulab-figure\" style=\"max-width:{WIDTH}px;{color}\">\n{svg}{}</svg>\n</div>\n",
            self.body
        )
    }

    /// Writes [`Figure::svg`] to `path`, with the folders above it.
    ///
    /// # Errors
    /// [`Error::File`] when the folder or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let write = || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(path, self.svg())
        };
        write().map_err(|error| Error::File {
            path: path.to_path_buf(),
            during: "save the figure as".to_string(),
            text: error.to_string(),
            fix: "choose a path in a folder where you may write, on a disk with room".to_string(),
        })
    }

    /// What the notebook calls to show a value: both forms, in one output of the cell.
    pub fn evcxr_display(&self) {
        // One call: a line of another thread must not fall between the markers.
        print!(
            "EVCXR_BEGIN_CONTENT text/html\n{}EVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT image/svg+xml\n{}EVCXR_END_CONTENT\n",
            self.html(),
            self.svg()
        );
    }
}

/// Text for an attribute of an SVG element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_form_has_no_background_and_the_file_form_has_one() {
        let figure = Figure::new("t", "<line/>\n".to_string(), 100.0);
        assert!(figure.svg().contains("#ffffff") && figure.svg().contains("color=\"#1a1a1a\""));
        assert!(!figure.html().contains("#ffffff") && figure.html().contains("--jp-content-font-color1"));
        assert!(figure.svg().contains("viewBox=\"0 0 7600 1000\""));
    }

    #[test]
    fn saving_makes_folders_and_names_the_path_when_it_cannot() {
        let folder = std::env::temp_dir().join(format!("gpulab-figure-{}", std::process::id()));
        let figure = Figure::new("t", String::new(), 10.0);
        let path = folder.join("a/b.svg");
        figure.save(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), figure.svg());
        let below_a_file = path.join("c.svg");
        let error = figure.save(&below_a_file).unwrap_err().to_string();
        assert!(error.contains("b.svg/c.svg") && error.contains("\nnext: choose a path"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
