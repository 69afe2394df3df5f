//! Holds a launch's arguments against the kernel's parameters, before the launch: afterwards a wrong type is
//! only wrong numbers.

use super::{ElementType, Parameter, ParameterType, Signature};
use crate::error::{Error, Result};

/// What a launch passes at one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// A buffer; `mutable` when it came as `&mut`.
    Buffer {
        /// The buffer's element type.
        element: ElementType,
        /// True for `&mut buffer`.
        mutable: bool,
    },
    /// A number.
    Scalar(ElementType),
    /// A matrix as the copy engine takes it.
    TensorMap,
}

impl ArgType {
    fn as_rust(self) -> String {
        match self {
            ArgType::Buffer { element, mutable } => {
                format!("`&{}Buffer<{element}>`", if mutable { "mut " } else { "" })
            }
            ArgType::Scalar(element) => format!("a number of type `{element}`"),
            ArgType::TensorMap => "a `&TensorMap`".to_string(),
        }
    }
}

/// Checks count and types.
///
/// # Errors
/// [`Error::ArgumentCount`] and [`Error::ArgumentType`], each with the kernel's own declaration.
pub fn check_arguments(signature: &Signature, given: &[ArgType]) -> Result<()> {
    if signature.parameters.len() != given.len() {
        return Err(Error::ArgumentCount {
            kernel: signature.name.clone(),
            signature: signature.to_string(),
            expected: signature.parameters.len(),
            given: given.len(),
        });
    }
    for (at, (parameter, given)) in signature.parameters.iter().zip(given).enumerate() {
        if let Some(fix) = mend(parameter, *given) {
            return Err(Error::ArgumentType {
                kernel: signature.name.clone(),
                position: at + 1,
                parameter: parameter.text.clone(),
                given: given.as_rust(),
                fix,
            });
        }
    }
    Ok(())
}

/// What to change when this argument does not fit this parameter.
fn mend(parameter: &Parameter, given: ArgType) -> Option<String> {
    match (parameter.kind, given) {
        (ParameterType::Pointer { element, constant }, ArgType::Buffer { element: passed, mutable }) => {
            if element.is_some_and(|element| element != passed) {
                let wanted = element?;
                return Some(format!(
                    "pass a `Buffer<{wanted}>` here, or declare the parameter as `{}{}*`",
                    if constant { "const " } else { "" },
                    passed.cuda_name()
                ));
            }
            (!constant && !mutable && element.is_some()).then(|| {
                "the kernel may write here: pass `&mut` of the buffer, or declare the parameter `const` if it only reads"
                    .to_string()
            })
        }
        (ParameterType::Pointer { .. }, ArgType::Scalar(_) | ArgType::TensorMap) => {
            Some("pass a buffer here: `&buffer`, or `&mut buffer` when the kernel writes it".to_string())
        }
        (ParameterType::Scalar(wanted), ArgType::Scalar(passed)) => (wanted != passed).then(|| {
            format!("write `value as {wanted}` in the launch, or declare the parameter as `{}`", passed.cuda_name())
        }),
        (ParameterType::Scalar(wanted), ArgType::Buffer { .. } | ArgType::TensorMap) => {
            Some(format!("pass a plain `{wanted}` here: the parameter is no pointer"))
        }
        (ParameterType::Other, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::signatures;
    use super::*;
    use ElementType::*;

    fn check(given: &[ArgType]) -> String {
        let kernel = signatures("__global__ void add(const float *a, float *c, int n)").remove(0);
        check_arguments(&kernel, given).map_or_else(|error| error.to_string(), |()| "ok".to_string())
    }

    const fn buffer(element: ElementType, mutable: bool) -> ArgType {
        ArgType::Buffer { element, mutable }
    }

    #[test]
    fn the_right_arguments_pass() {
        assert_eq!(check(&[buffer(F32, false), buffer(F32, true), ArgType::Scalar(I32)]), "ok");
        assert_eq!(check(&[buffer(F32, true), buffer(F32, true), ArgType::Scalar(I32)]), "ok");
    }

    #[test]
    fn the_wrong_ones_are_named_with_their_mend() {
        let (a, c, n) = (buffer(F32, false), buffer(F32, true), ArgType::Scalar(I32));
        let cases: [(&[ArgType], &str); 6] = [
            (&[a, c], "takes 3 arguments and was given 2"),
            (&[buffer(F64, false), c, n], "pass a `Buffer<f32>` here"),
            (&[a, a, n], "pass `&mut` of the buffer"),
            (&[a, c, ArgType::Scalar(U64)], "write `value as i32`"),
            (&[a, n, n], "pass a buffer here"),
            (&[a, c, a], "the parameter is no pointer"),
        ];
        for (given, text) in cases {
            let message = check(given);
            assert!(message.contains(text), "{given:?}: {message}");
        }
    }
}
