//! Which functions of CUDA's driver and runtime are probed, with which program: a table.
//!
//! Owns: the symbols. Refuses: those that take their arguments otherwise (the driver's 32-bit interface of before CUDA 3.2,
//! whose names have no `_v2`), copies of arrays and of batches, and polls (`cuEventQuery`): that a poll found something done
//! says nothing of the work that was launched since.

use infertap_abi::CudaClass;

/// Which library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `libcuda.so.1`.
    Driver,
    /// `libcudart.so`, also under the names that wheels give it.
    Runtime,
}

impl Side {
    /// By the name of the file, as the process has it.
    pub fn of(name: &str) -> Option<Side> {
        if name.starts_with("libcuda.so") {
            Some(Side::Driver)
        } else if name.starts_with("libcudart") && name.contains(".so") {
            Some(Side::Runtime)
        } else {
            None
        }
    }
}

/// One program, and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub struct CudaSpec {
    /// Library.
    pub side: Side,
    /// Which calls.
    pub class: CudaClass,
    /// Program at entry.
    pub enter: &'static str,
    /// Program at return, where the result matters.
    pub leave: Option<&'static str>,
    /// Exported symbols. With per-thread default streams the name ends in `_ptsz` or `_ptds`.
    pub symbols: &'static [&'static str],
}

macro_rules! table {
    ($($side:ident $class:ident $enter:literal $($leave:literal)? [$($symbol:literal),* $(,)?];)*) => {
        /// Every program of the CUDA family.
        pub const CUDA: &[CudaSpec] = &[$(CudaSpec {
            side: Side::$side,
            class: CudaClass::$class,
            enter: $enter,
            leave: table!(@leave $($leave)?),
            symbols: &[$($symbol),*],
        }),*];
    };
    (@leave) => { None };
    (@leave $leave:literal) => { Some($leave) };
}

table! {
    Driver Launch "cuda_launch" ["cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"];
    Driver Launch "cuda_launch_ex" ["cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"];
    Driver Graph "cuda_graph" ["cuGraphLaunch", "cuGraphLaunch_ptsz"];
    Driver Alloc "cuda_alloc" "cuda_alloc_return" [
        "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
        "cuMemAllocFromPoolAsync_ptsz",
    ];
    Driver Alloc "cuda_alloc_pitch" "cuda_alloc_pitch_return" ["cuMemAllocPitch_v2"];
    Driver Free "cuda_free" ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz"];
    Driver Virtual "cuda_create" "cuda_create_return" ["cuMemCreate"];
    Driver Virtual "cuda_map" "cuda_map_return" ["cuMemMap"];
    Driver Virtual "cuda_unmap" ["cuMemUnmap"];
    Driver Virtual "cuda_release" ["cuMemRelease"];
    Driver Copy "cuda_copy_h2d" ["cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"];
    Driver Copy "cuda_copy_h2d_async" ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2_ptsz"];
    Driver Copy "cuda_copy_d2h" ["cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds"];
    Driver Copy "cuda_copy_d2h_async" ["cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz"];
    Driver Copy "cuda_copy_d2d" ["cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds"];
    Driver Copy "cuda_copy_d2d_async" ["cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2_ptsz"];
    Driver Copy "cuda_copy_any" ["cuMemcpy", "cuMemcpy_ptds"];
    Driver Copy "cuda_copy_any_async" ["cuMemcpyAsync", "cuMemcpyAsync_ptsz"];
    Driver Copy "cuda_copy_peer" ["cuMemcpyPeer", "cuMemcpyPeer_ptds"];
    Driver Copy "cuda_copy_peer_async" ["cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz"];
    Driver Copy "cuda_copy_2d" [
        "cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DUnaligned_v2_ptds",
    ];
    Driver Copy "cuda_copy_2d_async" ["cuMemcpy2DAsync_v2", "cuMemcpy2DAsync_v2_ptsz"];
    Driver Copy "cuda_copy_3d" ["cuMemcpy3D_v2", "cuMemcpy3D_v2_ptds"];
    Driver Copy "cuda_copy_3d_async" ["cuMemcpy3DAsync_v2", "cuMemcpy3DAsync_v2_ptsz"];
    Driver Sync "cuda_sync" "cuda_sync_return" [
        "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuEventSynchronize", "cuCtxSynchronize", "cuCtxSynchronize_v2",
    ];

    Runtime Launch "cudart_launch" [
        "cudaLaunchKernel", "cudaLaunchKernel_ptsz", "cudaLaunchCooperativeKernel", "cudaLaunchCooperativeKernel_ptsz",
    ];
    Runtime Launch "cudart_launch_ex" ["cudaLaunchKernelExC", "cudaLaunchKernelExC_ptsz"];
    Runtime Graph "cudart_graph" ["cudaGraphLaunch", "cudaGraphLaunch_ptsz"];
    Runtime Alloc "cudart_alloc" "cudart_alloc_return" [
        "cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocAsync_ptsz", "cudaMallocFromPoolAsync",
        "cudaMallocFromPoolAsync_ptsz",
    ];
    Runtime Alloc "cudart_alloc_pitch" "cudart_alloc_pitch_return" ["cudaMallocPitch"];
    Runtime Free "cudart_free" ["cudaFree", "cudaFreeAsync", "cudaFreeAsync_ptsz"];
    Runtime Copy "cudart_copy" ["cudaMemcpy", "cudaMemcpy_ptds"];
    Runtime Copy "cudart_copy_async" ["cudaMemcpyAsync", "cudaMemcpyAsync_ptsz"];
    Runtime Copy "cudart_copy_peer" ["cudaMemcpyPeer"];
    Runtime Copy "cudart_copy_peer_async" ["cudaMemcpyPeerAsync"];
    Runtime Copy "cudart_copy_2d" ["cudaMemcpy2D", "cudaMemcpy2D_ptds"];
    Runtime Copy "cudart_copy_2d_async" ["cudaMemcpy2DAsync", "cudaMemcpy2DAsync_ptsz"];
    Runtime Sync "cudart_sync" "cudart_sync_return" [
        "cudaStreamSynchronize", "cudaStreamSynchronize_ptsz", "cudaEventSynchronize", "cudaDeviceSynchronize",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_symbol_has_one_program_and_is_of_the_library_that_exports_it() {
        let (mut symbols, mut programs) = (BTreeSet::new(), BTreeSet::new());
        for spec in CUDA {
            assert!(programs.insert(spec.enter), "{} twice", spec.enter);
            for symbol in spec.symbols {
                assert!(symbols.insert(symbol), "{symbol} twice");
                assert_eq!(symbol.starts_with("cuda"), spec.side == Side::Runtime, "{symbol}");
            }
        }
    }

    #[test]
    fn what_both_sides_wait_for_is_probed_on_return_on_both() {
        for spec in CUDA.iter().filter(|spec| spec.class != CudaClass::Virtual) {
            assert_eq!(spec.leave.is_some(), spec.class.returns(), "{}", spec.enter);
        }
    }

    #[test]
    fn libraries_are_known_by_the_names_that_they_have_in_the_field() {
        for (name, expected) in [
            ("libcuda.so.1", Some(Side::Driver)),
            ("libcuda.so.580.95.05", Some(Side::Driver)),
            ("libcudart.so.12", Some(Side::Runtime)),
            ("libcudart-d0da41ae.so.11.0", Some(Side::Runtime)),
            ("libcudadebugger.so.1", None),
            ("libcudart_static.a", None),
            ("libc10_cuda.so", None),
            ("libtorch_cuda.so", None),
        ] {
            assert_eq!(Side::of(name), expected, "{name}");
        }
    }
}
