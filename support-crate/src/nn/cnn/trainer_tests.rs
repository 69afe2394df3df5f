use super::*;
use crate::nn::cnn::{Ended, Parameters, Progress};
use std::ops::ControlFlow;

fn images() -> Images {
    Images::generated(1, 12, 4)
}

/// candle's layers, which are optimised in tests too.
fn plan(folder: &Path) -> Plan {
    let checkpoint = Some(folder.join("cnn.safetensors"));
    Plan { epochs: 2, batch: 4, checkpoint, every: 2, kernels: Some(Kernels::Candle), ..Plan::default() }
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-trainer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn on(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_run_that_was_broken_off_goes_on_bit_for_bit() {
    let folder = Folder::new("resume");
    let mut whole = Trainer::new(&images(), Plan { checkpoint: None, ..plan(&folder.0) }).unwrap();
    assert_eq!(whole.run(&mut on).unwrap(), Ended::Done);
    assert_eq!((whole.state().losses.len(), whole.state().epochs.len()), (6, 2));
    // Three steps, of which the last is lost: the file holds two.
    let mut broken = Trainer::new(&images(), plan(&folder.0)).unwrap();
    for _ in 0..2 {
        broken.step().unwrap();
    }
    broken.keep().unwrap();
    broken.step().unwrap();
    drop(broken);
    let mut resumed = Trainer::resume(&images(), plan(&folder.0)).unwrap();
    assert_eq!(resumed.state().step, 2);
    assert_eq!(resumed.run(&mut on).unwrap(), Ended::Done);
    assert_eq!(resumed.state().losses, whole.state().losses);
    let accuracies = |trainer: &Trainer| trainer.state().epochs.iter().map(|e| e.accuracy).collect::<Vec<_>>();
    assert_eq!(accuracies(&resumed), accuracies(&whole));
    let (resumed, whole) = (resumed.checkpoint().unwrap(), whole.checkpoint().unwrap());
    assert_eq!((resumed.parameters, resumed.m, resumed.v), (whole.parameters, whole.m, whole.v));
}

#[test]
fn own_layers_give_the_same_bits_each_time() {
    let losses = || {
        let own = Plan { batch: 2, kernels: Some(Kernels::Own), ..Plan::default() };
        let mut trainer = Trainer::new(&images(), own).unwrap();
        (0..2).for_each(|_| trainer.step().unwrap());
        trainer.checkpoint().unwrap().parameters
    };
    assert_eq!(losses(), losses());
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_file() {
    let folder = Folder::new("nan");
    let mut trainer = Trainer::new(&images(), plan(&folder.0)).unwrap();
    trainer.step().unwrap();
    trainer.keep().unwrap();
    let good = std::fs::read(folder.0.join("cnn.safetensors")).unwrap();
    let mut bad = Parameters::random(1);
    bad.arrays[7][0] = f32::NAN;
    trainer.cnn = Cnn::new(&bad, trainer.cnn.device(), Kernels::Candle, Precision::F32).unwrap();
    let text = trainer.run(&mut on).unwrap_err().to_string();
    assert!(text.contains("the loss of step 2 is NaN") && text.contains("holds it after step 1"), "{text}");
    assert!(text.contains("\nnext: begin again with a smaller learning rate"), "{text}");
    assert_eq!(std::fs::read(folder.0.join("cnn.safetensors")).unwrap(), good);
}

#[test]
fn a_stop_is_kept_and_plans_that_cannot_be_done_are_named() {
    let folder = Folder::new("stop");
    let mut trainer = Trainer::new(&images(), plan(&folder.0)).unwrap();
    assert_eq!(trainer.run(&mut |_| ControlFlow::Break(())).unwrap(), Ended::Stopped);
    let kept = Checkpoint::read(&folder.0.join("cnn.safetensors")).unwrap();
    assert_eq!(&kept.state, trainer.state());
    assert!(kept.state.step > 0 && kept.state.losses.len() as u64 == kept.state.step);
    let message = |images: &Images, change: fn(&mut Plan)| {
        let mut plan = plan(&folder.0);
        change(&mut plan);
        Trainer::resume(images, plan).unwrap_err().to_string()
    };
    assert!(message(&images(), |plan| plan.batch = 0).contains("train nothing"));
    assert!(message(&images(), |plan| plan.batch = 13).contains("next: use a batch of 12 or less"));
    assert!(message(&images(), |plan| plan.learning_rate = f64::NAN).contains("the learning rate NaN"));
    assert!(message(&images(), |plan| plan.checkpoint = None).contains("the plan names none"));
    let others = Images::generated(2, 12, 4);
    assert!(message(&others, |_| ()).contains("was trained on generated digits, seed 1, and these images are"));
    if !crate::nn::Place::Metal.is_built() {
        assert!(message(&images(), |plan| plan.place = crate::nn::Place::Metal).contains("a Mac's GPU"));
    }
}

#[test]
fn f16_scales_its_loss_and_lowers_the_scale_where_it_overflows() {
    let f16 = Plan { precision: Precision::F16, batch: 2, kernels: Some(Kernels::Candle), ..Plan::default() };
    let mut trainer = Trainer::new(&images(), f16).unwrap();
    assert_eq!(trainer.state().loss_scale, 65536.0);
    let before = trainer.cnn().parameters().unwrap();
    // Far too large: the gradients overflow, and the step is left out.
    trainer.state.loss_scale = 1e9;
    trainer.step().unwrap();
    assert_eq!((trainer.state().loss_scale, trainer.state().steady), (5e8, 0));
    assert_eq!(trainer.cnn().parameters().unwrap(), before);
    (trainer.state.loss_scale, trainer.state.steady) = (1024.0, STEADY - 1);
    trainer.step().unwrap();
    assert_eq!((trainer.state().loss_scale, trainer.state().steady), (2048.0, 0));
    assert_ne!(trainer.cnn().parameters().unwrap(), before);
}
