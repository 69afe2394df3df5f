//! Lines of CUDA C cut into tokens: to colour them, and to see which of them changed.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Space,
    Comment,
    Keyword,
    /// What CUDA adds to C++: `__shared__`, `threadIdx`, `__syncthreads`.
    Cuda,
    Number,
    Text,
    /// A line for the preprocessor.
    Directive,
    Name,
    Sign,
}

/// A piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
}

const KEYWORDS: &[&str] = &[
    "alignas",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "char",
    "const",
    "constexpr",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "false",
    "float",
    "for",
    "if",
    "inline",
    "int",
    "long",
    "namespace",
    "nullptr",
    "operator",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "struct",
    "switch",
    "template",
    "true",
    "typedef",
    "typename",
    "union",
    "unsigned",
    "using",
    "void",
    "volatile",
    "while",
    "size_t",
    "float2",
    "float4",
    "int2",
    "int4",
    "uint2",
    "uint4",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "int64_t",
];

const CUDA: &[&str] =
    &["threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "atomicAdd", "wmma", "asm", "printf"];

/// The tokens of each line. A comment between `/*` and `*/` may go over several.
pub(super) fn lines(text: &str) -> Vec<Vec<Token<'_>>> {
    let mut open = false;
    text.lines().map(|line| tokens(line, &mut open)).collect()
}

fn tokens<'a>(line: &'a str, open: &mut bool) -> Vec<Token<'a>> {
    let mut found = Vec::new();
    let mut rest = line;
    if line.trim_start().starts_with('#') && !*open {
        let end = line.find("//").unwrap_or(line.len());
        found.push(Token { kind: Kind::Directive, text: &line[..end] });
        rest = &line[end..];
    }
    while let Some(first) = rest.chars().next() {
        let (kind, length) = if *open || rest.starts_with("/*") {
            // Behind the opening, or where a comment goes on.
            let end = rest.find("*/").map(|at| at + 2);
            *open = end.is_none();
            (Kind::Comment, end.unwrap_or(rest.len()))
        } else if rest.starts_with("//") {
            (Kind::Comment, rest.len())
        } else {
            one(rest, first)
        };
        found.push(Token { kind, text: &rest[..length] });
        rest = &rest[length..];
    }
    found
}

/// Kind and length of the token that `rest` begins with; no comment.
fn one(rest: &str, first: char) -> (Kind, usize) {
    let while_ = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
    match first {
        c if c.is_whitespace() => (Kind::Space, while_(char::is_whitespace)),
        '"' => (Kind::Text, string(rest)),
        c if c.is_ascii_digit() => (Kind::Number, while_(|c| c.is_ascii_alphanumeric() || c == '.')),
        c if c.is_alphabetic() || c == '_' => {
            let end = while_(|c| c.is_alphanumeric() || c == '_');
            let kind = match &rest[..end] {
                word if KEYWORDS.contains(&word) => Kind::Keyword,
                word if word.starts_with("__") || CUDA.contains(&word) => Kind::Cuda,
                _ => Kind::Name,
            };
            (kind, end)
        }
        c => (Kind::Sign, c.len_utf8()),
    }
}

/// The length of a text in quotes, or of all that is left where it is not closed.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}
