//! What shows a ladder: sources and their differences.

use super::Album;
use gpulab::prelude::*;

pub(super) fn all(album: &mut Album) -> Result<()> {
    code(album)
}

fn code(album: &mut Album) -> Result<()> {
    for (name, before, after) in [
        ("diff-small", "reduction/02_tree", "reduction/03_whole_warps"),
        ("diff-constants", "reduction/06_warp_shuffles", "reduction/07_grid_stride"),
        ("diff-large", "matmul/03_register_column", "matmul/04_register_tile"),
    ] {
        let it = ladder::rung(after)?.diff_from(&ladder::rung(before)?)?;
        album.page(name, &it.html());
        println!("{it}");
    }
    let it = ladder::rung("matmul/02_tiled")?.listing()?;
    album.page("listing", &it.html());
    println!("{it}");
    Ok(())
}
