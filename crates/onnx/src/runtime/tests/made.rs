//! Models written byte by byte: no exporter, and no library but ONNX Runtime, has a part in these tests.

/// Just enough of protobuf to write a model: numbers and bytes under their field numbers (onnx.proto3).
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    fn with(self, field: u64, value: Message) -> Message {
        self.bytes(field, &value.0)
    }
}

/// A tensor port of f32; an extent is a number or a name.
fn port(name: &str, extents: &[&str]) -> Message {
    let shape = extents.iter().fold(Message::default(), |shape, extent| {
        let extent = match extent.parse::<u64>() {
            Ok(n) => Message::default().number(1, n),
            Err(_) => Message::default().text(2, extent),
        };
        shape.with(1, extent)
    });
    let tensor = Message::default().number(1, 1).with(2, shape);
    Message::default().text(1, name).with(2, Message::default().with(1, tensor))
}

fn node(operator: &str, inputs: &[&str], output: &str) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    node.text(2, output).text(3, &format!("the_{operator}")).text(4, operator)
}

/// The weights, row by row.
pub(super) const W: [f32; 6] = [1.0, -1.0, 0.5, 2.0, -3.0, 0.25];

/// y = activation(x · W + z), for x \[batch, 3\] and z \[batch, 2\].
pub(super) fn model(activation: &str, ir: u64, opset: u64) -> Vec<u8> {
    let raw: Vec<u8> = W.iter().flat_map(|value| value.to_le_bytes()).collect();
    let weights = Message::default().number(1, 3).number(1, 2).number(2, 1).text(8, "w").bytes(9, &raw);
    let graph = Message::default()
        .with(1, node("MatMul", &["x", "w"], "product"))
        .with(1, node("Add", &["product", "z"], "sum"))
        .with(1, node(activation, &["sum"], "y"))
        .text(2, "tiny")
        .with(5, weights)
        .with(11, port("x", &["batch", "3"]))
        .with(11, port("z", &["batch", "2"]))
        .with(12, port("y", &["batch", "2"]));
    let opset = Message::default().text(1, "").number(2, opset);
    Message::default().number(1, ir).with(7, graph).with(8, opset).0
}
