use super::super::{Graph, Kind, Numbers, gpt};
use super::*;
use gpulab_nn::gpt::{Config, Weights};

/// Notes each write: where its bytes lie, and how many they are. Takes so many bytes and is full.
struct Noted {
    bytes: Vec<u8>,
    writes: Vec<(usize, usize)>,
    room: usize,
}

impl Noted {
    fn new(room: usize) -> Noted {
        Noted { bytes: Vec::new(), writes: Vec::new(), room }
    }
}

impl Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let taken = bytes.len().min(self.room - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        self.writes.push((bytes.as_ptr() as usize, taken));
        if taken == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A table of 400 KB, and weights of less than is gathered.
fn weights() -> Weights {
    Weights::random(Config { n_layer: 3, n_head: 2, n_embd: 64, n_ctx: 24, vocab_size: 1600 }, 5).unwrap()
}

#[test]
fn a_stream_is_what_prost_gives_at_once() {
    let model = gpt(&weights()).unwrap();
    let mut noted = Noted::new(usize::MAX);
    encode(&model.proto, &mut noted).unwrap();
    assert!(noted.bytes == model.proto.encode_to_vec());

    // Weights around the length that is gathered, one of no bytes, and a graph of nothing.
    let mut graph = Graph::new("lengths");
    for length in [0, 1, GATHERED - 1, GATHERED, GATHERED + 1, 3 * GATHERED] {
        graph.weight(&format!("w{length}"), &[length], Numbers::U8(&vec![length as u8; length]));
    }
    let port = graph.input("x", Kind::F32, &[]);
    let y = graph.node("y", "Relu", &[&port], &[]);
    graph.output(&y, Kind::F32, &[]);
    for proto in [graph.finish().unwrap().proto, Default::default()] {
        let mut noted = Noted::new(usize::MAX);
        encode(&proto, &mut noted).unwrap();
        assert!(noted.bytes == proto.encode_to_vec());
    }
}

#[test]
fn large_weights_are_written_from_where_they_lie() {
    let weights = weights();
    let mut noted = Noted::new(usize::MAX);
    encode(&gpt(&weights).unwrap().proto, &mut noted).unwrap();
    let mut large = 0;
    for (name, tensor) in weights.iter().filter(|(_, tensor)| 4 * tensor.values.len() > GATHERED) {
        let own = (tensor.values.as_ptr() as usize, 4 * tensor.values.len());
        assert!(noted.writes.contains(&own), "{name} was copied");
        large += 1;
    }
    assert_eq!(large, 1);
    // All else is gathered.
    assert!(noted.writes.len() < 20, "{}", noted.writes.len());
}

#[test]
fn a_full_disk_is_told_wherever_it_is_full() {
    let proto = gpt(&weights()).unwrap().proto;
    let whole = proto.encode_to_vec();
    for room in (0..whole.len()).step_by(whole.len() / 50).chain([whole.len() - 1]) {
        let mut noted = Noted::new(room);
        let error = encode(&proto, &mut noted).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        // Nothing comes after the gap.
        assert!(noted.bytes == whole[..room]);
    }
}
