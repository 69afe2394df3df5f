//! What a kernel's parameters are: names and types from its CUDA C declaration, sizes from the compiled kernel.
//!
//! The reader of declarations is no C++ parser, and need not be one. It supplies names and element types; count, offsets
//! and sizes are those of the compiled kernel, and where the two disagree the compiled kernel is right.

use super::ElementType;
use std::fmt;

/// Bytes of an address on the device.
const POINTER: usize = 8;

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
    /// Where the kernel reads it; `None` where only the declaration is known.
    pub layout: Option<ParameterLayout>,
}

/// Where the compiled kernel reads a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterLayout {
    /// Bytes from the start of the parameters.
    pub offset: usize,
    /// Bytes that the driver copies from the argument.
    pub bytes: usize,
}

impl Parameter {
    /// Its own name, such as `a` of `const float *a` or `a: *const f32`; empty where it has none.
    pub fn name(&self) -> &str {
        if let Some((name, _)) = self.text.split_once(": ") {
            return name.trim_start_matches("mut ");
        }
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
    /// A vector, a struct, or a number of unknown type, by value: any plain value of that many bytes.
    Value,
    /// 64 bits of which neither a declaration nor the PTX says whether they are an address. Only a buffer is safe here: a
    /// number could be the address of pinned host memory.
    NumberOrAddress,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters: Vec<&str> = self.parameters.iter().map(|p| p.text.as_str()).collect();
        write!(f, "{}({})", self.name, parameters.join(", "))
    }
}

impl Signature {
    /// The compiled kernel's parameters, named and typed as `declared` where that agrees with what was compiled.
    pub(crate) fn with_declaration(mut self, declared: Option<&Signature>) -> Signature {
        // Another count: a declaration that macros or `#if` change, so none of its positions can be trusted.
        let declared = declared.filter(|declared| declared.parameters.len() == self.parameters.len());
        for (own, written) in self.parameters.iter_mut().zip(declared.into_iter().flat_map(|it| &it.parameters)) {
            own.text = written.text.clone();
            let fits = |bytes| own.layout.is_some_and(|layout| layout.bytes == bytes);
            let marked = matches!(own.kind, ParameterType::Pointer { .. });
            match written.kind {
                ParameterType::Pointer { .. } if fits(POINTER) => own.kind = written.kind,
                ParameterType::Scalar(element) if fits(element.bytes()) && !marked => own.kind = written.kind,
                _ => {}
            }
        }
        self
    }

    /// The same with offsets and sizes as the driver tells them, in order.
    pub(crate) fn with_layouts(mut self, layouts: &[ParameterLayout]) -> Signature {
        self.parameters.truncate(layouts.len());
        for (at, layout) in layouts.iter().enumerate() {
            match self.parameters.get_mut(at) {
                Some(own) if own.layout.is_some_and(|known| known.bytes == layout.bytes) => own.layout = Some(*layout),
                Some(own) => (own.kind, own.layout) = (ParameterType::of_size(layout.bytes), Some(*layout)),
                None => self.parameters.push(Parameter {
                    text: format!("parameter {}", at + 1),
                    kind: ParameterType::of_size(layout.bytes),
                    layout: Some(*layout),
                }),
            }
        }
        self
    }
}

impl ParameterType {
    /// What is known of a parameter from its size alone.
    fn of_size(bytes: usize) -> ParameterType {
        if bytes == POINTER { ParameterType::NumberOrAddress } else { ParameterType::Value }
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
            .map(|text| Parameter { kind: parameter_type(&text), text, layout: None })
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
        return ParameterType::Value;
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
    let name = type_words.join(" ");
    let element = element_type(&name);
    match (stars, element) {
        // A pointer to `float4` points to floats; a `float4` by value is 16 bytes, and no float.
        (0, Some(element)) if !name.ends_with(['2', '3', '4']) => ParameterType::Scalar(element),
        (1, element) => {
            let at = first_star.unwrap_or(words.len());
            ParameterType::Pointer { element, constant: words[..at].contains(&"const") }
        }
        _ => ParameterType::Value,
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

/// Every `.entry` of a PTX text with its parameters, in order.
///
/// PTX tells each parameter's size. Newer compilers mark addresses (`.ptr`); in a text without any such mark, 64 bits may be
/// an address or a number ([`ParameterType::NumberOrAddress`]).
pub fn entry_points(ptx: &str) -> Vec<Signature> {
    let ptx = without_comments(ptx);
    let entry = |(at, word): (usize, &str)| {
        let rest = ptx[at + word.len()..].trim_start();
        let name: String = rest.chars().take_while(|c| is_word(*c) || matches!(c, '$' | '.' | '%')).collect();
        let after = rest[name.len()..].trim_start();
        let list = match after.strip_prefix('(') {
            Some(inside) => &inside[..inside.find(')')?],
            // An entry without parameters may leave the parentheses out.
            None => "",
        };
        let texts = || list.split(',').map(str::trim).filter(|text| text.starts_with(".param"));
        Some((name, texts().map(str::to_string).collect::<Vec<_>>()))
    };
    let found: Vec<_> = ptx.match_indices(".entry").filter_map(entry).filter(|(name, _)| !name.is_empty()).collect();
    let marks =
        found.iter().flat_map(|(_, texts)| texts).any(|text| text.split_whitespace().any(|word| word == ".ptr"));
    let signature = |(name, texts): (String, Vec<String>)| {
        let mut end = 0;
        let parameters = texts.into_iter().map(|text| ptx_parameter(text, marks, &mut end)).collect();
        Signature { name, parameters }
    };
    found.into_iter().map(signature).collect()
}

/// `.param .align 16 .b8 name[16]`, `.param .u64 .ptr .align 1 name`; `end` is where the parameter before ended.
fn ptx_parameter(text: String, marks: bool, end: &mut usize) -> Parameter {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is = |word: &str| words.contains(&word);
    let align = words.windows(2).find(|pair| pair[0] == ".align").and_then(|pair| pair[1].parse().ok());
    let bytes = words[1..].iter().find_map(|word| {
        let bits: usize = word.strip_prefix(['.'])?.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()?;
        Some(bits / 8)
    });
    // `name[16]`, also for an array of wider elements.
    let count = match text.split_once('[') {
        None => Some(1),
        Some((_, rest)) => rest.split(']').next().and_then(|count| count.trim().parse::<usize>().ok()),
    };
    let own_align: usize = if is(".ptr") { POINTER } else { align.or(bytes).unwrap_or(1) };
    let layout = bytes.zip(count).and_then(|(bytes, count)| {
        let offset = end.checked_next_multiple_of(own_align.max(1))?;
        *end = offset.checked_add(bytes.checked_mul(count)?)?;
        Some(ParameterLayout { offset, bytes: *end - offset })
    });
    let kind = match layout {
        _ if is(".ptr") => ParameterType::Pointer { element: None, constant: false },
        Some(_) if is(".f32") && count == Some(1) && !text.contains('[') => ParameterType::Scalar(ElementType::F32),
        Some(_) if is(".f64") && count == Some(1) && !text.contains('[') => ParameterType::Scalar(ElementType::F64),
        Some(ParameterLayout { bytes: POINTER, .. }) if !marks && !is(".b8") => ParameterType::NumberOrAddress,
        _ => ParameterType::Value,
    };
    Parameter { text, kind, layout }
}

/// A word of a source: what stands between spaces and comments. A literal is never cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    /// The source line, counted from 1.
    pub line: usize,
    /// Its first byte in that line, counted from 1.
    pub column: usize,
    pub text: &'a str,
}

/// The source with each comment blanked out: everything else keeps its line and its column.
pub(crate) fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut before = ' ';
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let comment = comment(rest);
        let length = comment.or_else(|| literal(rest, before)).unwrap_or(first.len_utf8());
        let (piece, after) = rest.split_at(length);
        match comment {
            Some(_) => text.extend(piece.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
            None => text.push_str(piece),
        }
        (before, rest) = (piece.chars().next_back().unwrap_or(first), after);
    }
    text
}

/// The words of a source that has no comments any more.
pub(crate) fn words(code: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let (mut at, mut before) = (0, ' ');
        while let Some(gap) = line[at..].find(|c: char| !c.is_whitespace()) {
            let start = at + gap;
            at = start;
            while let Some(c) = line[at..].chars().next().filter(|c| !c.is_whitespace()) {
                at += literal(&line[at..], before).unwrap_or(c.len_utf8());
                before = c;
            }
            found.push(Word { line: number + 1, column: start + 1, text: &line[start..at] });
            before = ' ';
        }
    }
    found
}

/// The length of the comment that `text` begins with. Its line's end belongs to none, unless a backslash joins the next.
fn comment(text: &str) -> Option<usize> {
    if let Some(inside) = text.strip_prefix("/*") {
        return Some(inside.find("*/").map_or(text.len(), |at| at + 4));
    }
    let ends = text.starts_with("//").then(|| text.match_indices('\n').map(|(at, _)| at))?;
    Some(ends.into_iter().find(|&at| !text[..at].trim_end_matches('\r').ends_with('\\')).unwrap_or(text.len()))
}

/// The length of the literal that `text` begins with, `"…"` or `'…'`; it ends with its line at the latest.
fn literal(text: &str, before: char) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    // `1'000'000` is a number.
    if quote == '\'' && before.is_alphanumeric() {
        return None;
    }
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return Some(at),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
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
    fn what_it_cannot_read_is_known_by_size_alone() {
        assert_eq!(
            kinds("__global__ void k(Pair<int, float> p, float **rows, Tensor t, float4 v, const int2 w, __half *h)"),
            [
                ParameterType::Value,
                ParameterType::Value,
                ParameterType::Value,
                ParameterType::Value,
                ParameterType::Value,
                ParameterType::Pointer { element: None, constant: false }
            ]
        );
        assert_eq!(kinds("__global__ void k(uint32_t n, float4)"), [ParameterType::Scalar(U32), ParameterType::Value]);
    }

    #[test]
    fn several_kernels_and_a_forward_declaration() {
        let found = signatures("__global__ void a(int n); __global__ void b(); __global__ void a(int n) {}");
        assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    const ENTRIES: &str = ".visible .entry add(\n\t.param .u64 .ptr .align 1 add_param_0, // x, y)\n\t.param .u64 add_param_1,\n\
        \t.param .f32 add_param_2,\n\t.param .align 16 .b8 add_param_3[16]\n)\n{ ret; }\n.visible .entry none()\n{ ret; }";

    #[test]
    fn ptx_tells_sizes_and_offsets() {
        let found = entry_points(ENTRIES);
        assert_eq!(
            found.iter().map(|s| (s.name.as_str(), s.parameters.len())).collect::<Vec<_>>(),
            [("add", 4), ("none", 0)]
        );
        let kinds: Vec<_> = found[0].parameters.iter().map(|p| p.kind).collect();
        let pointer = ParameterType::Pointer { element: None, constant: false };
        assert_eq!(kinds, [pointer, ParameterType::Value, ParameterType::Scalar(F32), ParameterType::Value]);
        let layouts: Vec<_> = found[0].parameters.iter().map(|p| p.layout.map(|it| (it.offset, it.bytes))).collect();
        assert_eq!(layouts, [Some((0, 8)), Some((8, 8)), Some((16, 4)), Some((32, 16))]);
    }

    #[test]
    fn without_marks_64_bits_may_be_an_address() {
        let found = entry_points(&ENTRIES.replace(" .ptr .align 1", ""));
        assert_eq!(found[0].parameters[0].kind, ParameterType::NumberOrAddress);
        assert_eq!(found[0].parameters[1].kind, ParameterType::NumberOrAddress);
    }

    #[test]
    fn the_compiled_kernel_is_right_where_a_declaration_disagrees() {
        let merged = |source: &str, ptx: &str| {
            let declared = signatures(source);
            entry_points(ptx).remove(0).with_declaration(declared.first())
        };
        let ptx = ".entry k(.param .u64 k_0, .param .align 16 .b8 k_1[16], .param .u64 k_2)";
        // `float` is a macro for something of 16 bytes here.
        let own = merged("__global__ void k(const float *x, float v, size_t n)", ptx);
        let kinds: Vec<_> = own.parameters.iter().map(|p| p.kind).collect();
        let pointer = ParameterType::Pointer { element: Some(F32), constant: true };
        assert_eq!(kinds, [pointer, ParameterType::Value, ParameterType::Scalar(U64)]);
        assert_eq!(own.to_string(), "k(const float *x, float v, size_t n)");
        // A mark in the PTX wins over a number in the declaration, and another count over all of it.
        let marked = merged("__global__ void k(size_t n)", ".entry k(.param .u64 .ptr .align 1 k_0)");
        assert!(matches!(marked.parameters[0].kind, ParameterType::Pointer { .. }), "{marked:?}");
        let more = merged("__global__ void k(size_t n)", ptx);
        assert_eq!((more.parameters.len(), more.parameters[0].kind), (3, ParameterType::NumberOrAddress));
        // What the driver tells of sizes wins over both.
        let layouts = [ParameterLayout { offset: 0, bytes: 8 }, ParameterLayout { offset: 8, bytes: 4 }];
        let told = own.with_layouts(&layouts);
        let kinds: Vec<_> = told.parameters.iter().map(|p| (p.kind, p.layout)).collect();
        assert_eq!(kinds, [(pointer, Some(layouts[0])), (ParameterType::Value, Some(layouts[1]))]);
    }

    #[test]
    fn comments_go_and_everything_else_stays_where_it_is() {
        for (source, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* é\n */ b", "a      \n    b"),
            ("a // b \\\n c\nd", "a       \n  \nd"),
            (r#"f("// no", '"'); // yes"#, r#"f("// no", '"');       "#),
            ("int n = 1'000; // '", "int n = 1'000;     "),
            ("\"open // \nint a; // b", "\"open // \nint a;     "),
            ("a /* never ends", "a              "),
        ] {
            assert_eq!(without_comments(source), expected, "{source:?}");
        }
    }

    #[test]
    fn words_know_their_place_and_literals_are_whole() {
        let word = |line, column, text| Word { line, column, text };
        let code = "int  a;\n\n  printf(\"a  b\\\" c\", 'x');";
        let expected = [word(1, 1, "int"), word(1, 6, "a;"), word(3, 3, r#"printf("a  b\" c","#), word(3, 22, "'x');")];
        assert_eq!(words(code), expected);
        assert_eq!(words(" \n\t\n"), []);
    }
}
