//! Reads `__global__` declarations out of CUDA C, so that a launch can be checked against what the reader wrote.
//!
//! This is no C++ parser. What it does not understand becomes [`ParameterType::Other`], which accepts anything;
//! the count of parameters is always known.

use super::ElementType;
use super::words::without_comments;
use std::fmt;

/// A kernel's name and parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The name that the launch asks for.
    pub name: String,
    /// In order.
    pub parameters: Vec<Parameter>,
}

/// One parameter, as written and as understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The declaration, such as `const float *a`.
    pub text: String,
    /// What may be passed.
    pub kind: ParameterType,
}

impl Parameter {
    /// Its own name, such as `a` of `const float *a`; empty where it has none.
    pub fn name(&self) -> &str {
        let declared = self.text.split(['[', '=']).next().unwrap_or_default().trim_end();
        let name = declared.rsplit(|c: char| !is_word(c)).next().unwrap_or_default();
        // `const int` is a type alone.
        if element_type(name).is_some() || matches!(name, "const" | "void" | "__restrict__") { "" } else { name }
    }
}

/// What a parameter accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// A pointer into device memory: a buffer. `element` is `None` for `void*` and for types not known here.
    Pointer {
        /// The type pointed to. Vector types (`float4`) count as their element.
        element: Option<ElementType>,
        /// True for a pointer to `const`.
        constant: bool,
    },
    /// A number by value.
    Scalar(ElementType),
    /// Anything else.
    Other,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters: Vec<&str> = self.parameters.iter().map(|p| p.text.as_str()).collect();
        write!(f, "{}({})", self.name, parameters.join(", "))
    }
}

/// Every kernel declared in `source`, in order.
pub fn signatures(source: &str) -> Vec<Signature> {
    let text = without_comments(source);
    let mut found: Vec<Signature> = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("__global__") {
        rest = &rest[at + "__global__".len()..];
        if let Some(signature) = declaration(rest) {
            // A forward declaration and its definition are one kernel.
            if !found.iter().any(|known| known.name == signature.name) {
                found.push(signature);
            }
        }
    }
    found
}

/// Reads `void __launch_bounds__(256) name(int a, float *b)` from its start.
fn declaration(mut rest: &str) -> Option<Signature> {
    loop {
        let open = rest.find('(')?;
        let name = rest[..open].trim_end().rsplit(|c: char| !is_word(c)).next()?;
        let (inside, after) = parenthesised(&rest[open..])?;
        // Attributes come with parentheses of their own.
        if name.starts_with("__") {
            rest = after;
            continue;
        }
        if name.is_empty() {
            return None;
        }
        let parameters = split_top_level(inside)
            .into_iter()
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|text| !text.is_empty() && text != "void")
            .map(|text| Parameter { kind: parameter_type(&text), text })
            .collect();
        return Some(Signature { name: name.to_string(), parameters });
    }
}

/// The text between the parenthesis that `text` starts with and its partner, and what follows.
fn parenthesised(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[1..at], &text[at + 1..]));
        }
    }
    None
}

fn split_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parameter_type(text: &str) -> ParameterType {
    let spaced = text.replace('*', " * ").replace('[', " [ ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if words.iter().any(|word| word.contains(['<', '&', '(', ':']) && !word.starts_with("std::")) {
        return ParameterType::Other;
    }
    let qualifier =
        |word: &str| matches!(word, "const" | "volatile" | "__restrict__" | "__restrict" | "__grid_constant__" | "*");
    let first_star = words.iter().position(|word| matches!(*word, "*" | "["));
    let stars = words.iter().filter(|word| matches!(**word, "*" | "[")).count();
    let type_words: Vec<&str> = match first_star {
        Some(at) => {
            let before: Vec<&str> = words[..at].iter().copied().filter(|word| !qualifier(word)).collect();
            // `float x[]`: the name stands before the bracket.
            let keep = if words[at] == "[" { before.len().saturating_sub(1) } else { before.len() };
            before[..keep].to_vec()
        }
        None => {
            let all: Vec<&str> = words.iter().copied().filter(|word| !qualifier(word)).collect();
            // The last word is the parameter's name, unless the parameter has none.
            let named = all.len() > 1 && element_type(&all.join(" ")).is_none();
            all[..all.len() - usize::from(named)].to_vec()
        }
    };
    let element = element_type(&type_words.join(" "));
    match (stars, element) {
        (0, Some(element)) => ParameterType::Scalar(element),
        (1, element) => {
            let at = first_star.unwrap_or(words.len());
            ParameterType::Pointer { element, constant: words[..at].contains(&"const") }
        }
        _ => ParameterType::Other,
    }
}

fn element_type(name: &str) -> Option<ElementType> {
    use ElementType::*;
    let name = name.strip_prefix("std::").unwrap_or(name);
    Some(match name {
        "float" | "float2" | "float3" | "float4" => F32,
        "double" | "double2" => F64,
        "signed char" | "int8_t" | "char" => I8,
        "short" | "int16_t" => I16,
        "int" | "signed" | "signed int" | "int32_t" | "int2" | "int4" => I32,
        "long long" | "long long int" | "int64_t" | "ptrdiff_t" => I64,
        "unsigned char" | "uint8_t" | "uchar4" => U8,
        "unsigned short" | "uint16_t" => U16,
        "unsigned" | "unsigned int" | "uint32_t" | "uint2" | "uint4" => U32,
        "unsigned long long" | "unsigned long long int" | "uint64_t" | "size_t" => U64,
        _ => return None,
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use ElementType::*;

    fn kinds(source: &str) -> Vec<ParameterType> {
        let found = signatures(source);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        found[0].parameters.iter().map(|p| p.kind).collect()
    }

    #[test]
    fn reads_what_learners_write() {
        let pointer = |element, constant| ParameterType::Pointer { element: Some(element), constant };
        assert_eq!(
            kinds("extern \"C\" __global__ void add(const float* a, float *__restrict__ c, int n) {}"),
            [pointer(F32, true), pointer(F32, false), ParameterType::Scalar(I32)]
        );
        assert_eq!(
            kinds("__global__ void __launch_bounds__(256, 2) k(float const *a, unsigned n, size_t m, double x[])"),
            [pointer(F32, true), ParameterType::Scalar(U32), ParameterType::Scalar(U64), pointer(F64, false)]
        );
        assert_eq!(kinds("__launch_bounds__(64) __global__ void k(const float4 *a)"), [pointer(F32, true)]);
        assert_eq!(kinds("__global__ void k(void)"), []);
        assert_eq!(kinds("__global__ void k()"), []);
    }

    #[test]
    fn comments_are_not_code() {
        let source =
            "// __global__ void old(int a)\n/* __global__ void older() */\n__global__ void k(int /* count */ n)";
        assert_eq!(signatures(source)[0].to_string(), "k(int n)");
    }

    #[test]
    fn what_it_cannot_read_accepts_anything() {
        assert_eq!(
            kinds("__global__ void k(Pair<int, float> p, float **rows, Tensor t, __half *h)"),
            [
                ParameterType::Other,
                ParameterType::Other,
                ParameterType::Other,
                ParameterType::Pointer { element: None, constant: false }
            ]
        );
    }

    #[test]
    fn several_kernels_and_a_forward_declaration() {
        let found = signatures("__global__ void a(int n); __global__ void b(); __global__ void a(int n) {}");
        assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
