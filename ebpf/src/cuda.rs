//! CUDA family: uprobes on the driver's and the runtime's functions in watched processes.
//!
//! Owns: the programs, one a shape of arguments, and where each finds its bytes and its stream. Refuses: whether a call
//! counts (`entry`), what is kept of it (`account`), and which symbols have which shape (the agent's table). Launches and
//! copies have no probe on their return, which would cost as much again.

mod account;
mod entry;

use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use infertap_abi::{CudaCall, CudaClass, NO_STREAM};

use account::Wait;
pub use entry::CudaThread;
use entry::{Entered, Side, read_user, read_user_u32};

macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident: $side:ident $class:ident, $act:expr;)*) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            if let Some(entered) = Entered::counted(&ctx, Side::$side, CudaClass::$class) {
                let act: fn(&Entered, &ProbeContext) = $act;
                act(&entered, &ctx);
            }
            0
        }
    )*};
}

#[inline(always)]
fn arg(ctx: &ProbeContext, n: usize) -> u64 {
    ctx.arg(n).unwrap_or(0)
}

/// `CUlaunchConfig` and `cudaLaunchConfig_t` have their stream at the same place.
const CONFIG_STREAM: u64 = 32;

/// Of `CUDA_MEMCPY2D`: where the kinds of memory are, and the width.
const COPY_2D: (u64, u64, u64) = (16, 72, 112);
/// Of `CUDA_MEMCPY3D` and its peer form.
const COPY_3D: (u64, u64, u64) = (32, 120, 176);

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

/// The direction between two `CUmemorytype`s.
#[inline(always)]
fn between(from: u32, to: u32) -> CudaCall {
    let on_device = |kind| kind == DEVICE || kind == ARRAY;
    if from == HOST && on_device(to) {
        CudaCall::CopyHostToDevice
    } else if on_device(from) && to == HOST {
        CudaCall::CopyDeviceToHost
    } else if on_device(from) && on_device(to) {
        CudaCall::CopyDeviceToDevice
    } else if from == HOST && to == HOST {
        CudaCall::CopyHostToHost
    } else {
        CudaCall::CopyAny
    }
}

/// The direction that a `cudaMemcpyKind` says.
#[inline(always)]
fn kind(kind: u64) -> CudaCall {
    match kind as u32 {
        0 => CudaCall::CopyHostToHost,
        1 => CudaCall::CopyHostToDevice,
        2 => CudaCall::CopyDeviceToHost,
        3 => CudaCall::CopyDeviceToDevice,
        _ => CudaCall::CopyAny,
    }
}

/// A copy that a structure at `at` describes.
#[inline(always)]
fn described(entered: &Entered, at: u64, (from, to, width): (u64, u64, u64), deep: bool, stream: u64) {
    let direction = between(read_user_u32(at + from), read_user_u32(at + to));
    let mut bytes = read_user(at + width).wrapping_mul(read_user(at + width + 8));
    if deep {
        bytes = bytes.wrapping_mul(read_user(at + width + 16));
    }
    entered.copied(direction, bytes, stream);
}

entries! {
    /// cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, …), cuLaunchCooperativeKernel likewise
    cuda_launch: Driver Launch, |entered, _| entered.launched(CudaCall::KernelLaunch, entered.on_stack(2));
    /// cuLaunchKernelEx(config, f, …)
    cuda_launch_ex: Driver Launch, |entered, ctx| {
        entered.launched(CudaCall::KernelLaunch, read_user(arg(ctx, 0) + CONFIG_STREAM));
    };
    /// cuGraphLaunch(graph, stream)
    cuda_graph: Driver Graph, |entered, ctx| entered.launched(CudaCall::GraphLaunch, arg(ctx, 1));
    /// cuMemFree(pointer), cuMemFreeAsync(pointer, stream)
    cuda_free: Driver Free, |entered, ctx| entered.freed(arg(ctx, 0));
    /// cuMemcpyHtoD(to, from, bytes)
    cuda_copy_h2d: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyHostToDevice, arg(ctx, 2), NO_STREAM);
    /// cuMemcpyHtoDAsync(to, from, bytes, stream)
    cuda_copy_h2d_async: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyHostToDevice, arg(ctx, 2), arg(ctx, 3));
    /// cuMemcpyDtoH(to, from, bytes)
    cuda_copy_d2h: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyDeviceToHost, arg(ctx, 2), NO_STREAM);
    /// cuMemcpyDtoHAsync(to, from, bytes, stream)
    cuda_copy_d2h_async: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyDeviceToHost, arg(ctx, 2), arg(ctx, 3));
    /// cuMemcpyDtoD(to, from, bytes)
    cuda_copy_d2d: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyDeviceToDevice, arg(ctx, 2), NO_STREAM);
    /// cuMemcpyDtoDAsync(to, from, bytes, stream)
    cuda_copy_d2d_async: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyDeviceToDevice, arg(ctx, 2), arg(ctx, 3));
    /// cuMemcpy(to, from, bytes)
    cuda_copy_any: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyAny, arg(ctx, 2), NO_STREAM);
    /// cuMemcpyAsync(to, from, bytes, stream)
    cuda_copy_any_async: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyAny, arg(ctx, 2), arg(ctx, 3));
    /// cuMemcpyPeer(to, context, from, context, bytes)
    cuda_copy_peer: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyPeer, arg(ctx, 4), NO_STREAM);
    /// cuMemcpyPeerAsync(to, context, from, context, bytes, stream)
    cuda_copy_peer_async: Driver Copy, |entered, ctx| entered.copied(CudaCall::CopyPeer, arg(ctx, 4), arg(ctx, 5));
    /// cuMemcpy2D(description)
    cuda_copy_2d: Driver Copy, |entered, ctx| described(entered, arg(ctx, 0), COPY_2D, false, NO_STREAM);
    /// cuMemcpy2DAsync(description, stream)
    cuda_copy_2d_async: Driver Copy, |entered, ctx| described(entered, arg(ctx, 0), COPY_2D, false, arg(ctx, 1));
    /// cuMemcpy3D(description)
    cuda_copy_3d: Driver Copy, |entered, ctx| described(entered, arg(ctx, 0), COPY_3D, true, NO_STREAM);
    /// cuMemcpy3DAsync(description, stream)
    cuda_copy_3d_async: Driver Copy, |entered, ctx| described(entered, arg(ctx, 0), COPY_3D, true, arg(ctx, 1));
    /// cuMemUnmap(pointer, bytes)
    cuda_unmap: Driver Virtual, |entered, ctx| entered.unmapped(arg(ctx, 0), arg(ctx, 1));
    /// cuMemRelease(handle)
    cuda_release: Driver Virtual, |entered, ctx| entered.released(arg(ctx, 0));

    /// cudaLaunchKernel(f, grid, block, args, shared, stream): grid and block by value, two registers each;
    /// cudaLaunchCooperativeKernel likewise
    cudart_launch: Runtime Launch, |entered, _| entered.launched(CudaCall::KernelLaunch, entered.on_stack(1));
    /// cudaLaunchKernelExC(config, f, args)
    cudart_launch_ex: Runtime Launch, |entered, ctx| {
        entered.launched(CudaCall::KernelLaunch, read_user(arg(ctx, 0) + CONFIG_STREAM));
    };
    /// cudaGraphLaunch(graph, stream)
    cudart_graph: Runtime Graph, |entered, ctx| entered.launched(CudaCall::GraphLaunch, arg(ctx, 1));
    /// cudaFree(pointer), cudaFreeAsync(pointer, stream)
    cudart_free: Runtime Free, |entered, ctx| entered.freed(arg(ctx, 0));
    /// cudaMemcpy(to, from, bytes, kind)
    cudart_copy: Runtime Copy, |entered, ctx| entered.copied(kind(arg(ctx, 3)), arg(ctx, 2), NO_STREAM);
    /// cudaMemcpyAsync(to, from, bytes, kind, stream)
    cudart_copy_async: Runtime Copy, |entered, ctx| entered.copied(kind(arg(ctx, 3)), arg(ctx, 2), arg(ctx, 4));
    /// cudaMemcpyPeer(to, device, from, device, bytes)
    cudart_copy_peer: Runtime Copy, |entered, ctx| entered.copied(CudaCall::CopyPeer, arg(ctx, 4), NO_STREAM);
    /// cudaMemcpyPeerAsync(to, device, from, device, bytes, stream)
    cudart_copy_peer_async: Runtime Copy, |entered, ctx| entered.copied(CudaCall::CopyPeer, arg(ctx, 4), arg(ctx, 5));
    /// cudaMemcpy2D(to, pitch, from, pitch, width, height, kind)
    cudart_copy_2d: Runtime Copy, |entered, ctx| {
        entered.copied(kind(entered.on_stack(0)), arg(ctx, 4).wrapping_mul(arg(ctx, 5)), NO_STREAM);
    };
    /// cudaMemcpy2DAsync(to, pitch, from, pitch, width, height, kind, stream)
    cudart_copy_2d_async: Runtime Copy, |entered, ctx| {
        let bytes = arg(ctx, 4).wrapping_mul(arg(ctx, 5));
        entered.copied(kind(entered.on_stack(0)), bytes, entered.on_stack(1));
    };
}

/// The arguments with these numbers, each in its place.
#[inline(always)]
fn taken<const N: usize>(ctx: &ProbeContext, numbers: &[usize; N]) -> [u64; 4] {
    let mut args = [0; 4];
    for n in numbers {
        args[*n] = arg(ctx, *n);
    }
    args
}

macro_rules! calls {
    ($($(#[$doc:meta])* $enter:ident, $leave:ident: $side:ident $class:ident, $wait:ident, [$($arg:literal),*];)*) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $enter(ctx: ProbeContext) -> u32 {
            if let Some(entered) = Entered::counted(&ctx, Side::$side, CudaClass::$class) {
                entered.awaits(Wait::$wait, taken(&ctx, &[$($arg),*]));
            }
            0
        }

        /// Its return.
        #[uretprobe]
        pub fn $leave(ctx: RetProbeContext) -> u32 {
            entry::left(&ctx, Side::$side, CudaClass::$class);
            0
        }
    )*};
}

// The name of the return's program is that of the entry's and `_return`: the loader goes by it.
calls! {
    /// cuMemAlloc(&pointer, bytes), cuMemAllocManaged, cuMemAllocAsync, cuMemAllocFromPoolAsync
    cuda_alloc, cuda_alloc_return: Driver Alloc, Alloc, [0, 1];
    /// cuMemAllocPitch(&pointer, &pitch, width, height, element)
    cuda_alloc_pitch, cuda_alloc_pitch_return: Driver Alloc, AllocPitch, [0, 1, 3];
    /// cuMemCreate(&handle, bytes, …)
    cuda_create, cuda_create_return: Driver Virtual, Create, [0, 1];
    /// cuMemMap(pointer, bytes, offset, handle, flags)
    cuda_map, cuda_map_return: Driver Virtual, Map, [0, 1, 3];
    /// cuStreamSynchronize(stream), cuEventSynchronize(event), cuCtxSynchronize()
    cuda_sync, cuda_sync_return: Driver Sync, Sync, [];

    /// cudaMalloc(&pointer, bytes), cudaMallocManaged, cudaMallocAsync, cudaMallocFromPoolAsync
    cudart_alloc, cudart_alloc_return: Runtime Alloc, Alloc, [0, 1];
    /// cudaMallocPitch(&pointer, &pitch, width, height)
    cudart_alloc_pitch, cudart_alloc_pitch_return: Runtime Alloc, AllocPitch, [0, 1, 3];
    /// cudaStreamSynchronize(stream), cudaEventSynchronize(event), cudaDeviceSynchronize()
    cudart_sync, cudart_sync_return: Runtime Sync, Sync, [];
}
