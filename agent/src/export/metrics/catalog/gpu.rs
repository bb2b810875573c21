//! The metrics of GPUs.
//!
//! Owns: their words. Refuses: values. A gauge's name is that of its [`Gauge`](crate::sampler::nvml::Gauge), a counter's that
//! of its [`Total`](crate::sampler::nvml::Total)'s family; a test holds them together.

use super::{Definition, Kind};

catalog! {
    /// Of GPUs.
    pub(crate) const GPUS;
    GPU_INFO: Gauge "gpu_info" ["gpu", "uuid", "name", "driver", "pci", "parent"]
        "1 for each GPU and MIG instance that was seen; its labels tell what is known of it. gpu is the index that nvidia-smi shows, or index:instance."
        source "NVML. parent is the UUID of an instance's whole GPU, empty for a whole one."
        absent "Without NVML; for MIG instances that are no more.";
    GPU_UP: Gauge "gpu_up" ["gpu", "uuid"]
        "1 while a GPU is there, 0 when it was and can't be read any more: lost, taken out, in need of a reset, or behind a driver that hangs."
        source "Each reading."
        absent "As gpu_info.";
    GPU_LOSSES: Counter "gpu_losses_total" ["gpu", "uuid"]
        "How often a GPU that was there could not be read any more."
        source "Each reading."
        absent "As gpu_info.";
    GPU_UTILIZATION: Gauge "gpu_utilization_ratio" ["gpu", "uuid"]
        "Share of time in which any kernel ran, 0 to 1; mean since the reading before."
        source "NVML's samples, all of them; where the driver keeps none, what it tells at each reading. Over longer times, rate(gpu_busy_seconds_total) loses nothing."
        absent "Where neither is supported, as on MIG instances; while the GPU is away.";
    GPU_MEMORY_BUSY: Gauge "gpu_memory_busy_ratio" ["gpu", "uuid"]
        "Share of time in which memory was read or written, 0 to 1."
        source "NVML's utilisation rates."
        absent "As gpu_utilization_ratio.";
    GPU_MEMORY_USED: Gauge "gpu_memory_used_bytes" ["gpu", "uuid"]
        "Memory that is allocated, without what the driver keeps for itself."
        source "NVML, at each reading."
        absent "Where it is not supported; while the GPU is away.";
    GPU_MEMORY_FREE: Gauge "gpu_memory_free_bytes" ["gpu", "uuid"]
        "Memory that is not allocated."
        source "As gpu_memory_used_bytes."
        absent "As gpu_memory_used_bytes.";
    GPU_MEMORY_RESERVED: Gauge "gpu_memory_reserved_bytes" ["gpu", "uuid"]
        "Memory that the driver keeps for itself."
        source "As gpu_memory_used_bytes."
        absent "As gpu_memory_used_bytes.";
    GPU_MEMORY_TOTAL: Gauge "gpu_memory_total_bytes" ["gpu", "uuid"]
        "Memory there is."
        source "As gpu_memory_used_bytes."
        absent "As gpu_memory_used_bytes.";
    GPU_BAR1_USED: Gauge "gpu_bar1_used_bytes" ["gpu", "uuid"]
        "BAR1 space in use: memory that is mapped for access by the CPU and by other devices."
        source "NVML, at each reading."
        absent "Where it is not supported; while the GPU is away.";
    GPU_BAR1_TOTAL: Gauge "gpu_bar1_total_bytes" ["gpu", "uuid"]
        "BAR1 space there is."
        source "As gpu_bar1_used_bytes."
        absent "As gpu_bar1_used_bytes.";
    GPU_POWER: Gauge "gpu_power_watts" ["gpu", "uuid"]
        "Power drawn; mean since the reading before."
        source "NVML's samples, all of them; where the driver keeps none, what it tells at each reading."
        absent "Where it is not supported, as on MIG instances; while the GPU is away.";
    GPU_POWER_LIMIT: Gauge "gpu_power_limit_watts" ["gpu", "uuid"]
        "Power limit in force."
        source "NVML, at each reading."
        absent "Where it is not supported; while the GPU is away.";
    GPU_TEMPERATURE: Gauge "gpu_temperature_celsius" ["gpu", "uuid"]
        "Temperature of the chip."
        source "NVML, at each reading."
        absent "Where it is not supported; while the GPU is away.";
    GPU_MEMORY_TEMPERATURE: Gauge "gpu_memory_temperature_celsius" ["gpu", "uuid"]
        "Temperature of the memory."
        source "NVML, at each reading."
        absent "Where it is not supported (most boards without HBM); while the GPU is away.";
    GPU_SM_CLOCK: Gauge "gpu_sm_clock_hertz" ["gpu", "uuid"]
        "Clock of the multiprocessors."
        source "NVML, at each reading."
        absent "Where it is not supported; while the GPU is away.";
    GPU_MEMORY_CLOCK: Gauge "gpu_memory_clock_hertz" ["gpu", "uuid"]
        "Clock of the memory."
        source "NVML, at each reading."
        absent "Where it is not supported; while the GPU is away.";
    GPU_PCIE_TX_RATE: Gauge "gpu_pcie_tx_bytes_per_second" ["gpu", "uuid"]
        "PCIe traffic from the GPU, over 20 ms of each second at most."
        source "NVML's PCIe throughput."
        absent "Where gpu_pcie_bytes_total is there, which loses nothing; where it is not supported; while the GPU is away.";
    GPU_PCIE_RX_RATE: Gauge "gpu_pcie_rx_bytes_per_second" ["gpu", "uuid"]
        "PCIe traffic to the GPU, over 20 ms of each second at most."
        source "As gpu_pcie_tx_bytes_per_second."
        absent "As gpu_pcie_tx_bytes_per_second.";
    GPU_PAGES_PENDING: Gauge "gpu_retired_pages_pending" ["gpu", "uuid"]
        "1 while memory pages wait for a reboot to be retired, else 0."
        source "NVML, at each reading."
        absent "Where it is not supported (Ampere and newer remap rows); while the GPU is away.";
    GPU_REMAP_PENDING: Gauge "gpu_row_remap_pending" ["gpu", "uuid"]
        "1 while memory rows wait for a reset of the GPU to be remapped, else 0."
        source "NVML, at each reading."
        absent "Where it is not supported (before Ampere, pages are retired); while the GPU is away.";
    GPU_REMAP_FAILED: Gauge "gpu_row_remap_failed" ["gpu", "uuid"]
        "1 when a memory row could not be remapped: the GPU should be replaced. Else 0."
        source "As gpu_row_remap_pending."
        absent "As gpu_row_remap_pending.";
    GPU_SM_ACTIVE: Gauge "gpu_sm_active_ratio" ["gpu", "uuid"]
        "Share of the multiprocessors' time with work on them, 0 to 1; since the reading before."
        source "The chip's performance counters (GPM)."
        absent "On chips before Hopper; while the GPU is away.";
    GPU_SM_OCCUPANCY: Gauge "gpu_sm_occupancy_ratio" ["gpu", "uuid"]
        "Warps on the multiprocessors, of what they have room for, 0 to 1; since the reading before."
        source "As gpu_sm_active_ratio."
        absent "As gpu_sm_active_ratio.";
    GPU_TENSOR_ACTIVE: Gauge "gpu_tensor_active_ratio" ["gpu", "uuid"]
        "Share of time in which tensor cores worked, 0 to 1; since the reading before."
        source "As gpu_sm_active_ratio."
        absent "As gpu_sm_active_ratio.";
    GPU_DRAM_ACTIVE: Gauge "gpu_dram_active_ratio" ["gpu", "uuid"]
        "Share of the memory bandwidth in use, 0 to 1; since the reading before."
        source "As gpu_sm_active_ratio."
        absent "As gpu_sm_active_ratio.";
    GPU_ENERGY: Counter "gpu_energy_joules_total" ["gpu", "uuid"]
        "Energy drawn."
        source "The driver's counter, which began with the driver; where it has none, integrated over the power that it sampled, else over the power at each reading, from the agent's start. /api/v1/gpus tells which."
        absent "Where neither energy nor power is supported, as on MIG instances.";
    GPU_BUSY: Counter "gpu_busy_seconds_total" ["gpu", "uuid"]
        "Time in which any kernel ran, since the agent's start."
        source "As gpu_utilization_ratio, integrated."
        absent "Where the utilisation is not supported, as on MIG instances.";
    GPU_THROTTLE: Counter "gpu_throttle_seconds_total" ["gpu", "uuid", "reason"]
        "Time with lower clocks than could be, by reason. Reasons overlap."
        source "The driver's own counters of time; for reasons that it does not count, the time for which they held at each reading."
        absent "Where neither is supported.";
    GPU_ECC: Counter "gpu_ecc_errors_total" ["gpu", "uuid", "kind"]
        "Memory errors over the board's life. kind is corrected or uncorrected."
        source "NVML's aggregate ECC counts."
        absent "Where there is no ECC, or it is off.";
    GPU_RETIRED_PAGES: Counter "gpu_retired_pages_total" ["gpu", "uuid", "cause"]
        "Memory pages retired over the board's life. cause is single_bit (several of them) or double_bit."
        source "NVML."
        absent "Where it is not supported (Ampere and newer remap rows).";
    GPU_REMAPPED_ROWS: Counter "gpu_remapped_rows_total" ["gpu", "uuid", "cause"]
        "Memory rows remapped over the board's life. cause is correctable or uncorrectable."
        source "NVML."
        absent "Where it is not supported (before Ampere, pages are retired).";
    GPU_PCIE_BYTES: Counter "gpu_pcie_bytes_total" ["gpu", "uuid", "direction"]
        "Bytes over PCIe. direction is tx (from the GPU) or rx."
        source "The driver's counters."
        absent "Where the driver does not count; then gpu_pcie_tx_bytes_per_second and its sibling may be there.";
    GPU_PCIE_REPLAYS: Counter "gpu_pcie_replays_total" ["gpu", "uuid"]
        "PCIe packets that had to be sent again."
        source "The driver's counter."
        absent "Where it is not supported.";
    GPU_NVLINK_BYTES: Counter "gpu_nvlink_bytes_total" ["gpu", "uuid", "direction"]
        "Bytes over NVLink, all links together, without protocol. direction is tx (from the GPU) or rx."
        source "The driver's counters."
        absent "Without NVLink; where the driver does not count.";
    GPU_XID: Counter "gpu_xid_errors_total" ["gpu", "uuid", "xid"]
        "Errors that the driver reported of a GPU, by NVIDIA's number (XID). Every event is counted once."
        source "NVML's events, on a thread that waits for them."
        absent "For a number, until its first error; where events are not supported. Past 64 numbers a GPU they are other.";
    GPU_PROCESS_MEMORY: Gauge "gpu_process_memory_bytes" ["gpu", "engine"]
        "Memory that the processes of an engine hold. other are processes of no engine, unknown are those whose process is not here."
        source "NVML's process lists, and discovery."
        absent "Where the driver does not tell; for the whole GPU where MIG splits it; when the processes are gone.";
    GPU_PROCESS_SM: Gauge "gpu_process_sm_ratio" ["gpu", "engine"]
        "Share of the multiprocessors' time that the processes of an engine took, 0 to 1; mean since the reading before. engine as above."
        source "NVML's process utilisation, and discovery."
        absent "Where the driver does not tell, as under MIG; when the processes are gone.";
    GPU_ERRORS: Counter "infertap_gpu_errors_total" ["error"]
        "Readings of GPUs and of their values that failed, by error. What is not supported is no error."
        source "NVML's answers."
        absent "Without NVML.";
}
