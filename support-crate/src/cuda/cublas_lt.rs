//! cuBLASLt, loaded when it is there: products whose algorithm is chosen by whoever calls, with a bias or GELU in the same
//! kernel.

use super::{CudaGpu, CudaMemory, Library};
use crate::error::{Error, Result};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulHeuristicResult_t as Heuristic, cublasLtMatmulPreferenceAttributes_t as Preference,
    cudaDataType as DataType,
};
use cudarc::driver::{CudaSlice, DevicePtr, DevicePtrMut};
use std::ffi::c_void;
use std::sync::Arc;

/// What is done to a result before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LtEpilogue {
    /// Nothing.
    None,
    /// A number for each column is added.
    Bias,
    /// The same, and then GELU (by tanh); what it was before GELU is stored too.
    BiasGelu,
    /// Times the derivative of GELU at what [`LtEpilogue::BiasGelu`] has stored.
    GeluBackward,
}

/// A kind of product: `c (rows × columns) = a (rows × terms) · b (terms × columns)`, all row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LtShape {
    /// Of the result.
    pub rows: usize,
    /// Of the result.
    pub columns: usize,
    /// Products that a number of the result is a sum of.
    pub terms: usize,
    /// `a` is stored as `terms` rows.
    pub a_transposed: bool,
    /// `b` is stored as `columns` rows, as the weights of a linear layer are.
    pub b_transposed: bool,
    /// The result is f32, not bf16.
    pub f32_result: bool,
    /// The product is added to what the result holds.
    pub adds: bool,
    /// What else is done to it.
    pub epilogue: LtEpilogue,
    /// Numbers from the beginning of a stored row of `a`, of `b` and of the result to that of the next one; 0: rows have no gaps.
    pub strides: [usize; 3],
}

/// How the library computes a product, as it may be kept in a file: it means the same to the same version of the library
/// ([`CublasLt::version`](crate::gpu::CublasLt::version)), on the same kind of GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LtAlgorithm(pub [u64; 8]);

impl LtShape {
    /// Numbers of a stored row of `a`, of `b` and of the result.
    pub(crate) fn columns_stored(&self) -> [usize; 3] {
        let LtShape { rows, columns, terms, a_transposed, b_transposed, .. } = *self;
        [if a_transposed { rows } else { terms }, if b_transposed { terms } else { columns }, columns]
    }

    /// Stored rows of `a`, of `b` and of the result.
    pub(crate) fn rows_stored(&self) -> [usize; 3] {
        let LtShape { rows, columns, terms, a_transposed, b_transposed, .. } = *self;
        [if a_transposed { terms } else { rows }, if b_transposed { columns } else { terms }, rows]
    }

    /// Numbers from the beginning of a stored row of `a`, of `b` and of the result to that of the next one, gaps or not.
    pub fn row_strides(&self) -> [usize; 3] {
        let stored = self.columns_stored();
        std::array::from_fn(|which| if self.strides[which] == 0 { stored[which] } else { self.strides[which] })
    }

    /// Numbers from the first one to behind the last one.
    pub(crate) fn spans(&self) -> [usize; 3] {
        let (rows, columns, strides) = (self.rows_stored(), self.columns_stored(), self.row_strides());
        std::array::from_fn(|which| (rows[which] - 1) * strides[which] + columns[which])
    }
}

/// Bytes for products that split a sum over blocks; NVIDIA recommends 32 MiB for Hopper.
const WORKSPACE: usize = 64 << 20;
/// What a matrix's first byte is a multiple of; the library assumes 256 if nobody says.
const ALIGNMENT: u32 = 16;

/// The library on one GPU.
#[derive(Debug)]
pub(crate) struct CudaCublasLt {
    handle: sys::cublasLtHandle_t,
    workspace: CudaSlice<u8>,
}

// SAFETY: the library's handle may be used from any thread.
unsafe impl Send for CudaCublasLt {}
// SAFETY: as above, and by several at a time.
unsafe impl Sync for CudaCublasLt {}

impl Drop for CudaCublasLt {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own. A failure leaves memory of the library's behind, no more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// One kind of product, and the algorithms that the library proposes for it.
#[derive(Debug)]
pub(crate) struct CudaProduct {
    library: Arc<CudaCublasLt>,
    description: sys::cublasLtMatmulDesc_t,
    /// Of the library's first and second matrix, and of the result. It counts by columns: its first one is our second.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    proposals: Vec<Heuristic>,
}

// SAFETY: descriptions are plain memory of the library's; a call that changes one takes `&mut`.
unsafe impl Send for CudaProduct {}

impl Drop for CudaProduct {
    fn drop(&mut self) {
        // SAFETY: all of them are this value's own, and made.
        unsafe {
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.description);
        }
    }
}

/// Where a matrix begins: memory, and bytes from its start.
pub(crate) type At<'a> = (&'a CudaMemory, usize);

impl CudaGpu {
    /// Loads the library, and opens it on this GPU.
    pub(crate) fn cublas_lt(&self) -> Result<Arc<CudaCublasLt>> {
        if !Library::CublasLt.is_present() {
            return Err(Error::unsupported(
                "cuBLASLt is not there (libcublasLt.so was not found on LD_LIBRARY_PATH)",
                "install it with the CUDA toolkit, and add its folder, such as /usr/local/cuda/lib64",
            ));
        }
        let workspace = self.alloc(WORKSPACE)?.into_slice(WORKSPACE);
        let handle = result::create_handle().map_err(|error| failed("opening cuBLASLt", error))?;
        Ok(Arc::new(CudaCublasLt { handle, workspace }))
    }
}

impl CudaCublasLt {
    /// Its version, as 10000 × major + 100 × minor + patch (of older ones 1000 × major).
    pub(crate) fn version(&self) -> usize {
        // SAFETY: the library is loaded; the call reads a number.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// Asks for at most that many algorithms, the one first that the library thinks fastest.
    pub(crate) fn product(self: &Arc<Self>, shape: LtShape, most: usize) -> Result<CudaProduct> {
        self.product_of(shape, most).map_err(|error| failed("preparing cuBLASLt's product", error))
    }

    fn product_of(self: &Arc<Self>, shape: LtShape, most: usize) -> std::result::Result<CudaProduct, CublasError> {
        let LtShape { columns, a_transposed, b_transposed, f32_result, epilogue, .. } = shape;
        let bf16 = DataType::CUDA_R_16BF;
        let (rows_stored, columns_stored, strides) = (shape.rows_stored(), shape.columns_stored(), shape.row_strides());
        // By columns our row-major matrix is its transposed one; so what lies transposed to us lies straight there.
        let layout = |kind, which: usize| {
            let [rows, columns] = [rows_stored[which], columns_stored[which]].map(|side| side as u64);
            result::create_matrix_layout(kind, columns, rows, strides[which] as i64)
        };
        let out = if f32_result { DataType::CUDA_R_32F } else { bf16 };
        let mut product = CudaProduct {
            library: Arc::clone(self),
            description: result::create_matmul_desc(Compute::CUBLAS_COMPUTE_32F, DataType::CUDA_R_32F)?,
            layouts: [layout(bf16, 1)?, layout(bf16, 0)?, layout(out, 2)?],
            proposals: Vec::new(),
        };
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(b_transposed))?;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(a_transposed))?;
        let code = match epilogue {
            LtEpilogue::None => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            LtEpilogue::Bias => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            LtEpilogue::BiasGelu => Epilogue::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
            LtEpilogue::GeluBackward => Epilogue::CUBLASLT_EPILOGUE_DGELU,
        };
        product.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, code as u32)?;
        if matches!(epilogue, LtEpilogue::BiasGelu | LtEpilogue::GeluBackward) {
            product.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, columns as i64)?;
        }
        product.proposals = product.ask(most)?;
        Ok(product)
    }
}

impl CudaProduct {
    fn set<T: Copy>(&mut self, attribute: Attribute, value: T) -> std::result::Result<(), CublasError> {
        // SAFETY: the description is made, and the value is read before the call returns.
        unsafe {
            result::set_matmul_desc_attribute(self.description, attribute, (&raw const value).cast(), size_of::<T>())
        }
    }

    fn ask(&self, most: usize) -> std::result::Result<Vec<Heuristic>, CublasError> {
        let (workspace, alignment) = (WORKSPACE, ALIGNMENT);
        let preference = result::create_matmul_pref()?;
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: the preference is made, and the value is read before the call returns.
            unsafe { result::set_matmul_pref_attribute(preference, attribute, value, bytes) }
        };
        let asked = set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), 8);
        let aligned = [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        let asked = aligned
            .into_iter()
            .fold(asked, |done, which| done.and_then(|()| set(which, (&raw const alignment).cast(), size_of::<u32>())));
        let mut found: Vec<Heuristic> = Vec::with_capacity(most);
        let mut count = 0;
        let [first, second, out] = self.layouts;
        let asked = asked.and_then(|()| {
            // SAFETY: everything is made, and there is room for as many answers as are asked for.
            unsafe {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.library.handle,
                    self.description,
                    first,
                    second,
                    out,
                    out,
                    preference,
                    most as i32,
                    found.as_mut_ptr(),
                    &mut count,
                )
            }
            .result()
        });
        // SAFETY: it is this function's own.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        asked?;
        // SAFETY: the library has written so many.
        unsafe { found.set_len((count as usize).min(most)) };
        found.retain(|proposal| proposal.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(found)
    }

    pub(crate) fn proposals(&self) -> usize {
        self.proposals.len()
    }

    /// One of the proposals, to be kept.
    pub(crate) fn algorithm(&self, proposal: usize) -> LtAlgorithm {
        LtAlgorithm(self.proposals[proposal].algo.data)
    }

    /// Takes that algorithm as the only proposal, where the library says that it computes this product.
    pub(crate) fn adopt(&mut self, algorithm: LtAlgorithm) -> Result<()> {
        let algo = sys::cublasLtMatmulAlgo_t { data: algorithm.0 };
        let [first, second, out] = self.layouts;
        let mut checked = std::mem::MaybeUninit::<Heuristic>::zeroed();
        // SAFETY: everything is made; the algorithm is read, and the answer written, before the call returns.
        let status = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                self.library.handle,
                self.description,
                first,
                second,
                out,
                out,
                &raw const algo,
                checked.as_mut_ptr(),
            )
        };
        status.result().map_err(|error| failed("taking a kept algorithm of cuBLASLt's", error))?;
        // SAFETY: the library has written it; of zeros alone it would be valid, too.
        let checked = unsafe { checked.assume_init() };
        if checked.workspaceSize > WORKSPACE {
            return Err(failed(
                "taking a kept algorithm of cuBLASLt's",
                CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED),
            ));
        }
        self.proposals = vec![Heuristic { algo, ..checked }];
        Ok(())
    }

    /// Queues it by one of the proposals, on memory that the caller has checked.
    pub(crate) fn queue(
        &mut self,
        gpu: &CudaGpu,
        (proposal, adds): (usize, bool),
        [a, b]: [At<'_>; 2],
        (c, c_at): (&mut CudaMemory, usize),
        bias: Option<At<'_>>,
        aux: Option<u64>,
    ) -> Result<()> {
        let problem = |error| failed("cuBLASLt's product", error);
        let queue = gpu.queue();
        gpu.uses([a.0, b.0, &*c]);
        gpu.uses(bias.iter().map(|bias| bias.0));
        let library = Arc::clone(&self.library);
        gpu.keep(|| library.clone());
        let [(one, _one), (two, _two)] = [a.0, b.0].map(|memory| memory.device_ptr(&queue));
        let (out, _out) = c.device_ptr_mut(&queue);
        let (room, _room) = library.workspace.device_ptr(&queue);
        let bias = bias.map(|(memory, at)| {
            let (address, guard) = memory.device_ptr(&queue);
            (address + at as u64, guard)
        });
        if let Some((address, _)) = &bias {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, *address).map_err(problem)?;
        }
        if let Some(address) = aux {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address).map_err(problem)?;
        }
        let (alpha, beta) = (1.0_f32, if adds { 1.0_f32 } else { 0.0 });
        let [first, second, result_layout] = self.layouts;
        let out = out + c_at as u64;
        // SAFETY: the pointers are of live memory on this GPU that holds these matrices, and the guards keep the order of the
        // stream; alpha, beta and the algorithm are read before the call returns; everything of the library's is open.
        unsafe {
            result::matmul(
                library.handle,
                self.description,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                (two + b.1 as u64) as *const c_void,
                first,
                (one + a.1 as u64) as *const c_void,
                second,
                out as *const c_void,
                result_layout,
                out as *mut c_void,
                result_layout,
                &raw const self.proposals[proposal].algo,
                room as *mut c_void,
                WORKSPACE,
                queue.cu_stream().cast(),
            )
        }
        .map_err(problem)
    }
}

fn failed(during: &str, CublasError(status): CublasError) -> Error {
    Error::Driver {
        during: during.to_string(),
        code: format!("{status:?}"),
        text: "cuBLASLt refuses".to_string(),
        fix: "run `make verify`; if memory is short, drop buffers that are no longer needed".to_string(),
    }
}
