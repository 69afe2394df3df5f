//! A kernel's parameters as its Rust declaration names them. As with CUDA C, count and sizes are the compiled kernel's.

use super::{ElementType, Parameter, ParameterType, Signature, without_comments};

/// Every kernel (`extern "ptx-kernel" fn`) declared in Rust text, in order.
pub fn rust_signatures(source: &str) -> Vec<Signature> {
    let text = without_comments(source);
    let declarations = text.split("\"ptx-kernel\"").skip(1);
    declarations.filter_map(|rest| declaration(rest.trim_start().strip_prefix("fn")?)).collect()
}

/// Reads ` name(a: *const f32, n: u32)` from its start.
fn declaration(rest: &str) -> Option<Signature> {
    let (name, rest) = rest.split_once('(')?;
    let name = name.split('<').next()?.trim().to_string();
    let (mut parameters, mut depth, mut text) = (Vec::new(), 0, String::new());
    for c in rest.chars() {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' if depth == 0 => break,
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        match c {
            ',' if depth == 0 => parameters.push(std::mem::take(&mut text)),
            _ => text.push(c),
        }
    }
    parameters.push(text);
    let words = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parameters = parameters.iter().map(words).filter(|text| !text.is_empty());
    let parameters = parameters.map(|text| Parameter { kind: kind(&text), text, layout: None }).collect();
    Some(Signature { name, parameters })
}

fn kind(text: &str) -> ParameterType {
    let Some((_, kind)) = text.split_once(':') else { return ParameterType::Value };
    let kind = kind.trim();
    for (mark, constant) in [("*const ", true), ("*mut ", false)] {
        if let Some(of) = kind.strip_prefix(mark) {
            return ParameterType::Pointer { element: element(of.trim()), constant };
        }
    }
    element(kind).filter(|_| !kind.starts_with('[')).map_or(ParameterType::Value, ParameterType::Scalar)
}

/// The number that a type consists of: `[f32; 4]` and `Vec4<f32>` count as `f32`.
fn element(kind: &str) -> Option<ElementType> {
    use ElementType::*;
    let of_array = kind.strip_prefix('[').and_then(|rest| Some(rest.split_once(';')?.0.trim()));
    let of_vector = ["Vec2<", "Vec4<"].iter().find_map(|name| kind.strip_prefix(name)?.strip_suffix('>'));
    Some(match of_array.or(of_vector).unwrap_or(kind) {
        "f32" => F32,
        "f64" => F64,
        "i8" => I8,
        "i16" => I16,
        "i32" => I32,
        "i64" | "isize" => I64,
        "u8" => U8,
        // A buffer holds 16-bit floats as their bits.
        "u16" | "f16" | "Bf16" => U16,
        "u32" => U32,
        "u64" | "usize" => U64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_in_rust_are_read() {
        let text = "
            // extern \"ptx-kernel\" fn none(a: u8)
            #[unsafe(no_mangle)]
            pub unsafe extern \"ptx-kernel\" fn add(a: *const f32, b: *const [f32; 4], c: *mut f32, line: Line,
                n: usize, scale: f32,) {}
            extern \"ptx-kernel\" fn nothing() {}
            extern \"C\" fn helper(x: u32) {}";
        let found = rust_signatures(text);
        let names: Vec<&str> = found.iter().map(|signature| signature.name.as_str()).collect();
        assert_eq!(names, ["add", "nothing"]);
        let float = |constant| ParameterType::Pointer { element: Some(ElementType::F32), constant };
        let kinds: Vec<ParameterType> = found[0].parameters.iter().map(|parameter| parameter.kind).collect();
        let (n, scale) = (ParameterType::Scalar(ElementType::U64), ParameterType::Scalar(ElementType::F32));
        assert_eq!(kinds, [float(true), float(true), float(false), ParameterType::Value, n, scale]);
        let names: Vec<&str> = found[0].parameters.iter().map(Parameter::name).collect();
        assert_eq!(names, ["a", "b", "c", "line", "n", "scale"]);
    }
}
