//! Which provider took which node, as ONNX Runtime tells it of a session.

use super::said::said;
use gpulab::error::Result;
use ort::session::Session;
use ort::{AsPointer, sys};
use std::ffi::{CStr, c_char};
use std::ptr;

/// The setting that has a session keep it.
pub(super) const RECORD: (&str, &str) = ("session.record_ep_graph_assignment_info", "1");

/// A node of the graph, and the provider that computes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePlace {
    /// The node's name in the file; empty where it has none.
    pub node: String,
    /// Its operator, such as `Conv`.
    pub operator: String,
    /// ONNX Runtime's name of the provider, such as `CUDAExecutionProvider`.
    pub provider: String,
    /// Nodes of one number were handed over together: TensorRT and CoreML make one program of them.
    pub part: usize,
}

/// Reads a text that belongs to ONNX Runtime.
type Text<T> = unsafe extern "system" fn(*const T, *mut *const c_char) -> sys::OrtStatusPtr;

fn text<T>(function: Text<T>, of: *const T) -> ort::Result<String> {
    let mut text = ptr::null();
    // SAFETY: `of` was given by the session, which is alive; the text is its own and is copied here.
    unsafe {
        ort::Error::result_from_status(function(of, &mut text))?;
        Ok(if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() })
    }
}

/// The list behind a function that gives a pointer and a count.
fn list<'s, T>(
    call: impl FnOnce(*mut *const *const T, *mut usize) -> sys::OrtStatusPtr,
) -> ort::Result<&'s [*const T]> {
    let (mut first, mut count) = (ptr::null(), 0);
    // SAFETY: ONNX Runtime's list of so many pointers; it lives as long as the session, longer than this module's use.
    unsafe {
        ort::Error::result_from_status(call(&mut first, &mut count))?;
        Ok(if first.is_null() || count == 0 { &[] } else { std::slice::from_raw_parts(first, count) })
    }
}

/// All nodes of a session that was opened with [`RECORD`].
pub(super) fn of(session: &Session) -> Result<Vec<NodePlace>> {
    read(session).map_err(|error| {
        said(
            "which provider took which node could not be read",
            &error,
            "use the ONNX Runtime that `make setup` brings",
        )
    })
}

fn read(session: &Session) -> ort::Result<Vec<NodePlace>> {
    let api = ort::api();
    let mut places = Vec::new();
    // SAFETY: the session is alive, and was opened with the setting that this call asks for.
    let parts = list(|first, count| unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), first, count) })?;
    for (part, &subgraph) in parts.iter().enumerate() {
        let provider = text(api.EpAssignedSubgraph_GetEpName, subgraph)?;
        // SAFETY: a part that the session has just given.
        let nodes = list(|first, count| unsafe { (api.EpAssignedSubgraph_GetNodes)(subgraph, first, count) })?;
        for &node in nodes {
            places.push(NodePlace {
                node: text(api.EpAssignedNode_GetName, node)?,
                operator: text(api.EpAssignedNode_GetOperatorType, node)?,
                provider: provider.clone(),
                part,
            });
        }
    }
    Ok(places)
}

/// `12 nodes on CUDAExecutionProvider; 2 on CPUExecutionProvider (Shape, Gather)`: where the nodes are; the operators of
/// those that are not on the provider that was asked for are named.
pub(super) fn sentence(places: &[NodePlace], asked: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for place in places {
        if !names.contains(&place.provider.as_str()) {
            names.push(&place.provider);
        }
    }
    names.sort_by_key(|name| *name != asked);
    let about = names.iter().map(|&name| {
        let of: Vec<&NodePlace> = places.iter().filter(|place| place.provider == name).collect();
        let mut operators: Vec<&str> = of.iter().map(|place| place.operator.as_str()).collect();
        operators.sort_unstable();
        operators.dedup();
        let which = if name == asked { String::new() } else { format!(" ({})", operators.join(", ")) };
        format!("{} {} on {name}{which}", of.len(), if of.len() == 1 { "node" } else { "nodes" })
    });
    about.collect::<Vec<String>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_is_named_with_its_operators() {
        let place = |operator: &str, provider: &str| NodePlace {
            node: String::new(),
            operator: operator.to_string(),
            provider: provider.to_string(),
            part: 0,
        };
        let places = [place("Shape", "C"), place("Conv", "G"), place("Gather", "C"), place("Shape", "C")];
        assert_eq!(sentence(&places, "G"), "1 node on G; 3 nodes on C (Gather, Shape)");
        assert_eq!(sentence(&[], "G"), "");
    }
}
