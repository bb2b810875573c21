//! The metrics of engines' CUDA calls.
//!
//! Owns: their words. Refuses: values.

use super::{Definition, Kind};

catalog! {
    /// Of CUDA calls.
    pub(crate) const CUDA;
    CUDA_KERNEL_LAUNCHES: Counter "cuda_kernel_launches_total" ["engine"]
        "Kernels that the engine launched one by one; those within graphs are not in it."
        source "Probes on the functions of libcuda and libcudart in the engine's processes; docs/cuda.md tells how a call is counted once."
        absent "While no process of the engine has CUDA mapped, with gpu.cuda = false, and when the engine is gone.";
    CUDA_GRAPH_LAUNCHES: Counter "cuda_graph_launches_total" ["engine"]
        "CUDA graphs that the engine launched."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total.";
    CUDA_MEMCPY: Counter "cuda_memcpy_total" ["engine", "direction"]
        "Copies that the engine asked for, by direction: host_to_device, device_to_host, device_to_device, peer, host_to_host, or unknown where the call leaves it to the driver."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total.";
    CUDA_MEMCPY_BYTES: Counter "cuda_memcpy_bytes_total" ["engine", "direction"]
        "Bytes of those copies."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total.";
    CUDA_ALLOCATIONS: Counter "cuda_allocations_total" ["engine"]
        "Allocations of GPU memory that succeeded; pooled ones and physical memory that is mapped by hand included."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total.";
    CUDA_ALLOC_FAILURES: Counter "cuda_alloc_failures_total" ["engine"]
        "Allocations of GPU memory that failed, for whatever reason; /api/v1/engines tells how many for want of memory."
        source "As cuda_kernel_launches_total. A record's gpu_alloc_failures tells those of its time."
        absent "As cuda_kernel_launches_total.";
    CUDA_ALLOCATED: Gauge "cuda_allocated_bytes" ["engine"]
        "GPU memory that the engine holds, of the allocations that were seen: what it allocated before its calls were counted is not in it."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total; and when a process holds more allocations than are followed.";
    CUDA_SYNCS: Counter "cuda_sync_total" ["engine"]
        "Times that threads of the engine waited for a stream, an event or a device."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total.";
    CUDA_SYNC_SECONDS: Counter "cuda_sync_seconds_total" ["engine"]
        "Time that they waited. Threads add up."
        source "As cuda_kernel_launches_total."
        absent "As cuda_kernel_launches_total.";
}
