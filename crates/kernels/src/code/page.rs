//! Lines of code as HTML: JupyterLab's colours where the page has them, else middle tones for light and dark pages.

use super::token::{Kind, Token};
use gpulab::html::escape;

/// Once for each output. Colours of the changed lines are Okabe and Ito's, which colour-blind readers tell apart.
const STYLE: &str = "<style>\
.gpulab-code{color:var(--jp-content-font-color1,inherit)}\
.gpulab-code pre{font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);\
line-height:1.4;margin:.4em 0;padding:.3em 0;background:none;color:inherit;\
border:1px solid rgba(127,127,127,.35)}\
.gpulab-code .l{display:block;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;\
padding-left:var(--gutter);text-indent:calc(-1*var(--gutter))}\
.gpulab-code .n{color:#808080;user-select:none;-webkit-user-select:none}\
.gpulab-code .add{background:rgba(0,148,108,.16)}.gpulab-code .add b{background:rgba(0,148,108,.42)}\
.gpulab-code .del{background:rgba(213,94,0,.15)}.gpulab-code .del b{background:rgba(213,94,0,.42)}\
.gpulab-code b{font-weight:inherit;border-radius:2px}\
.gpulab-code .gap{background:rgba(127,127,127,.12);color:#808080}\
.gpulab-code .k{color:var(--jp-mirror-editor-keyword-color,#00946c);font-weight:bold}\
.gpulab-code .c{color:var(--jp-mirror-editor-comment-color,#808080);font-style:italic}\
.gpulab-code .add .c,.gpulab-code .del .c{color:inherit;opacity:.75}\
.gpulab-code .u{color:var(--jp-mirror-editor-def-color,#0072b2)}\
.gpulab-code .m{color:var(--jp-mirror-editor-number-color,#8c7024)}\
.gpulab-code .s{color:var(--jp-mirror-editor-string-color,#d55e00)}\
.gpulab-code .d{color:var(--jp-mirror-editor-meta-color,#c4689a)}\
.gpulab-code b span{color:inherit}\
</style>";

/// One line of code. Tokens that are marked stand in `<b>`.
pub(super) fn line(tokens: &[Token<'_>], marked: &[bool]) -> String {
    let mut html = String::new();
    let is_marked = |at: usize| marked.get(at).copied().unwrap_or(false);
    for (at, token) in tokens.iter().enumerate() {
        let before = at > 0 && is_marked(at - 1);
        match (before, is_marked(at)) {
            (false, true) => html += "<b>",
            (true, false) => html += "</b>",
            _ => {}
        }
        let text = escape(token.text);
        match class(token.kind) {
            "" => html += &text,
            class => html += &format!("<span class=\"{class}\">{text}</span>"),
        }
    }
    if !tokens.is_empty() && is_marked(tokens.len() - 1) {
        html += "</b>";
    }
    html
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Comment => "c",
        Kind::Keyword => "k",
        Kind::Cuda => "u",
        Kind::Number => "m",
        Kind::Text => "s",
        Kind::Directive => "d",
        Kind::Space | Kind::Name | Kind::Sign => "",
    }
}

/// The box with all lines, whose line numbers are so many letters wide: what is too long goes on behind them.
pub(super) fn frame(title: &str, lines: &str, gutter: usize) -> String {
    format!("{STYLE}<div class=\"gpulab-code\" style=\"--gutter:{gutter}ch\">{title}<pre>{lines}</pre></div>\n")
}
