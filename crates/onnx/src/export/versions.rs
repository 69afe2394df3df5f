//! Versions of ONNX's list of operators: the newest that is written, and older ones for runtimes that lag behind.

use super::Onnx;
use super::model::Node;
use super::schema::OperatorSetIdProto;
use gpulab::error::{Error, Result};

/// The version of ONNX's operators that is written when nothing else is asked for: that of ONNX 1.19.
pub const OPSET: i64 = 24;
/// The version of the file format that goes with it.
pub const IR: i64 = 12;
/// The newest version for which ONNX Runtime 1.31 has CUDA kernels of all that the course exports. MaxPool got a new
/// version in 22, which its CUDA provider does not know: the pooling goes to the CPU, and its numbers with it.
pub const CUDA_OPSET: i64 = 21;

/// All operators that are exported mean the same from this version on, in what they are told here …
const OLDEST: i64 = 13;
/// … but for these, which came, or got the attribute that is used, in a later one.
const LATER: [(&str, i64); 4] = [("Shape", 15), ("LayerNormalization", 17), ("Split", 18), ("Gelu", 20)];

impl Onnx {
    /// The same graph, as a file of another version of ONNX's operators, 13 to [`OPSET`]. The numbers are the same: only
    /// what a runtime must know is less.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a version that is not written, or one that lacks an operator of the graph (named, with its node).
    pub fn with_opset(mut self, opset: i64) -> Result<Onnx> {
        if !(OLDEST..=OPSET).contains(&opset) {
            return Err(Error::Invalid {
                what: format!("operators of version {opset} are not written"),
                fix: format!("ask for a version from {OLDEST} to {OPSET}"),
            });
        }
        let came = |node: &Node| LATER.iter().find(|(name, _)| *name == node.operator).map_or(OLDEST, |(_, at)| *at);
        if let Some(newest) = self.nodes().iter().filter(|node| came(node) > opset).max_by_key(|node| came(node)) {
            return Err(Error::Invalid {
                what: format!(
                    "the node `{}` is a {}, which operators of version {opset} do not have as it is used here",
                    newest.name, newest.operator
                ),
                fix: format!("ask for version {} or newer", came(newest)),
            });
        }
        self.proto.ir_version = Some(format_of(opset));
        self.proto.opset_import = import(opset);
        Ok(self)
    }
}

/// What a file says of its operators.
pub(super) fn import(opset: i64) -> Vec<OperatorSetIdProto> {
    vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(opset) }]
}

/// The file format of the ONNX that brought these operators: its `docs/Versioning.md`.
fn format_of(opset: i64) -> i64 {
    match opset {
        ..15 => 7,
        15..19 => 8,
        19..21 => 9,
        21..23 => 10,
        23 => 11,
        _ => IR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{cnn, gpt};
    use gpulab_nn::cnn::Parameters;
    use gpulab_nn::gpt::{Config, Weights};

    #[test]
    fn an_older_version_changes_two_numbers_and_nothing_else() {
        let model = cnn(&Parameters::random(1)).unwrap();
        assert_eq!(model.versions(), (OPSET, IR));
        for (opset, format) in [(13, 7), (18, 8), (20, 9), (21, 10), (22, 10), (23, 11)] {
            let older = model.clone().with_opset(opset).unwrap();
            assert_eq!(older.versions(), (opset, format));
            assert_eq!((older.nodes(), older.weights()), (model.nodes(), model.weights()));
        }
        assert_eq!(model.clone().with_opset(OPSET).unwrap(), model);
    }

    #[test]
    fn a_version_that_lacks_an_operator_is_refused_with_the_node() {
        let model = cnn(&Parameters::random(1)).unwrap();
        for opset in [-1, 12, OPSET + 1] {
            let text = model.clone().with_opset(opset).unwrap_err().to_string();
            assert!(
                text.contains(&format!("{opset} are not written\nnext: ask for a version from 13 to 24")),
                "{text}"
            );
        }
        let config = Config { n_layer: 1, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };
        let model = gpt(&Weights::random(config, 1).unwrap()).unwrap();
        let text = model.clone().with_opset(18).unwrap_err().to_string();
        assert!(text.contains("`h.0.mlp.gelu` is a Gelu") && text.contains("ask for version 20"), "{text}");
        assert_eq!(model.with_opset(20).unwrap().versions(), (20, 9));
    }
}
