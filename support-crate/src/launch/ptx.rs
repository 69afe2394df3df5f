//! Reads kernel names and parameters out of PTX, for modules that come without source and to check the source's reading.

use super::{ElementType, Parameter, ParameterType, Signature};

/// Every `.entry` of a PTX text with its parameters, in order.
///
/// PTX knows a parameter's size and not what it points to, so a 64-bit one accepts a buffer as well as a number.
pub fn entry_points(ptx: &str) -> Vec<Signature> {
    ptx.match_indices(".entry")
        .filter_map(|(at, word)| {
            let rest = ptx[at + word.len()..].trim_start();
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.')).collect();
            let after = rest[name.len()..].trim_start();
            let list = match after.strip_prefix('(') {
                Some(inside) => &inside[..inside.find(')')?],
                // An entry without parameters may leave the parentheses out.
                None => "",
            };
            let parameters = list
                .split(',')
                .map(str::trim)
                .filter(|text| text.starts_with(".param"))
                .map(|text| Parameter { text: text.to_string(), kind: parameter_type(text) })
                .collect();
            (!name.is_empty()).then_some(Signature { name, parameters })
        })
        .collect()
}

fn parameter_type(text: &str) -> ParameterType {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.contains(&".ptr") {
        return ParameterType::Pointer { element: None, constant: false };
    }
    match words.get(1).copied() {
        Some(".f32") => ParameterType::Scalar(ElementType::F32),
        Some(".f64") => ParameterType::Scalar(ElementType::F64),
        _ => ParameterType::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_entries_as_nvrtc_prints_them() {
        let ptx = ".visible .entry add(\n\t.param .u64 .ptr .align 1 add_param_0,\n\t.param .u64 add_param_1,\n\
                   \t.param .f32 add_param_2\n)\n{ ret; }\n.visible .entry none()\n{ ret; }";
        let found = entry_points(ptx);
        assert_eq!(
            found.iter().map(|s| (s.name.as_str(), s.parameters.len())).collect::<Vec<_>>(),
            [("add", 3), ("none", 0)]
        );
        assert_eq!(found[0].parameters[0].kind, ParameterType::Pointer { element: None, constant: false });
        assert_eq!(found[0].parameters[1].kind, ParameterType::Other);
        assert_eq!(found[0].parameters[2].kind, ParameterType::Scalar(ElementType::F32));
    }
}
