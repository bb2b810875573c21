//! GPUs to begin a script with.
//!
//! Owns: one data-centre GPU that supports all that the format knows, and instances of it. Refuses: being a product's
//! data sheet.

use crate::{
    Clocks, Ecc, EccCount, EccCounter, EccLocation, EccType, Energy, Gpu, Instance, Link, LinkErrors, Memory,
    Mig, Pci, Pcie, Policy, PowerLimits, RemappedRows, RetiredPages, Slices, Utilization, Value,
};

const GIB: u64 = 1 << 30;

impl Gpu {
    /// GPU number `index`, idle, with every function supported.
    pub fn datacenter(index: u32) -> Gpu {
        let count = |error, counter, location, count: u32| EccCount {
            error,
            counter,
            location,
            count: count.into(),
        };
        let link = Link {
            active: Some(1.0.into()),
            tx_kib: Some(Value::growing(1024.0)),
            rx_kib: Some(Value::growing(2048.0)),
            errors: LinkErrors {
                replay: Some(0.0.into()),
                recovery: Some(0.0.into()),
                crc_flit: Some(0.0.into()),
                crc_data: Some(0.0.into()),
                ecc_data: Some(0.0.into()),
            },
        };
        let gpm = [
            ("graphics_util", 3.0),
            ("sm_util", 2.5),
            ("sm_occupancy", 1.25),
            ("any_tensor_util", 0.5),
            ("dram_bw_util", 1.5),
            ("fp16_util", 0.25),
            ("pcie_tx_per_sec", 10.0),
            ("pcie_rx_per_sec", 20.0),
            ("nvlink_total_rx_per_sec", 30.0),
            ("nvlink_total_tx_per_sec", 40.0),
        ];
        Gpu {
            uuid: format!("GPU-00000000-0000-4000-8000-{index:012x}"),
            name: "Stand-in H100 80GB HBM3".to_owned(),
            serial: Some(format!("16543{index:08}")),
            minor: Some(index),
            pci: Some(Pci {
                bus_id: format!("00000000:{:02X}:00.0", 0x1b + index),
                device_id: 0x2330_10de,
                subsystem_id: 0x16c1_10de,
            }),
            brand: Some(14),
            architecture: Some(9),
            compute_capability: Some((9, 0)),
            memory: Some(Memory {
                total: 80 * GIB,
                reserved: GIB / 2,
                used: (4 * GIB).into(),
            }),
            bar1: Some(Memory {
                total: 128 * GIB,
                reserved: 0,
                used: (GIB / 1024).into(),
            }),
            utilization: Some(Utilization {
                gpu: 0.0.into(),
                memory: 0.0.into(),
            }),
            power_mw: Some(70_000.0.into()),
            power_limits: Some(PowerLimits {
                management: 700_000.0.into(),
                enforced: 650_000.0.into(),
                default: 700_000,
                min: 200_000,
                max: 700_000,
            }),
            energy_mj: Some(Energy::OfPower { start_mj: 0.0 }),
            temperature_c: Some(35.0.into()),
            memory_temperature_c: Some(40.0.into()),
            clocks_mhz: clocks([345.0, 345.0, 2619.0, 765.0]),
            max_clocks_mhz: clocks([1980.0, 1980.0, 2619.0, 1545.0]),
            throttle_reasons: Some(Gpu::IDLE.into()),
            violations_ns: [
                Policy::Power,
                Policy::Thermal,
                Policy::BoardLimit,
                Policy::Reliability,
            ]
            .map(|policy| (policy, Value::from(0.0)))
            .into(),
            performance_state: Some(0.0.into()),
            fan_percent: None,
            compute_mode: Some(0),
            persistence: Some(true),
            pcie: Pcie {
                tx_kib_s: Some(2048.0.into()),
                rx_kib_s: Some(1024.0.into()),
                tx_bytes: Some(Value::growing(2048.0 * 1024.0)),
                rx_bytes: Some(Value::growing(1024.0 * 1024.0)),
                replays: Some(0.0.into()),
                generation: Some((5, 5)),
                width: Some((16, 16)),
            },
            nvlink: vec![link; 4],
            ecc: Some(Ecc {
                current: true,
                pending: true,
                counts: vec![
                    count(EccType::Corrected, EccCounter::Volatile, None, 0),
                    count(EccType::Uncorrected, EccCounter::Volatile, None, 0),
                    count(EccType::Corrected, EccCounter::Aggregate, None, 0),
                    count(EccType::Uncorrected, EccCounter::Aggregate, None, 0),
                    count(
                        EccType::Corrected,
                        EccCounter::Aggregate,
                        Some(EccLocation::Dram),
                        0,
                    ),
                    count(
                        EccType::Uncorrected,
                        EccCounter::Aggregate,
                        Some(EccLocation::Dram),
                        0,
                    ),
                ],
            }),
            // Since Ampere, rows are remapped instead.
            retired_pages: None,
            remapped_rows: Some(RemappedRows {
                correctable: 0.0.into(),
                uncorrectable: 0.0.into(),
                pending: 0.0.into(),
                failure: 0.0.into(),
            }),
            processes: Some(Vec::new()),
            mig: Some(Mig {
                enabled: false,
                max: 7,
                instances: Vec::new(),
            }),
            gpm: Some(gpm.map(|(name, value)| (name.to_owned(), value.into())).into()),
            ..Gpu::default()
        }
    }

    /// One of an older generation: Pascal, without remapped rows, MIG and GPM, with retired pages.
    pub fn older(index: u32) -> Gpu {
        Gpu {
            name: "Stand-in P100 16GB".to_owned(),
            architecture: Some(4),
            compute_capability: Some((6, 0)),
            retired_pages: Some(RetiredPages {
                single_bit: 0.0.into(),
                double_bit: 0.0.into(),
                pending: 0.0.into(),
            }),
            remapped_rows: None,
            mig: None,
            gpm: None,
            memory_temperature_c: None,
            nvlink: Vec::new(),
            ..Gpu::datacenter(index)
        }
    }

    /// Turns multi-instance mode on, with `count` instances of one slice. As on the real one, the GPU tells no utilisation
    /// any more.
    #[must_use]
    pub fn with_instances(mut self, count: u32) -> Gpu {
        let instance = |number: u32| Instance {
            uuid: self.uuid.replacen("GPU-", &format!("MIG-{number:x}"), 1),
            name: format!("{} MIG 1g.10gb", self.name),
            gpu_instance: 7 + number,
            compute_instance: 0,
            memory: Some(Memory {
                total: 10 * GIB,
                reserved: 0,
                used: GIB.into(),
            }),
            bar1: Some(Memory {
                total: 16 * GIB,
                reserved: 0,
                used: 0.0.into(),
            }),
            slices: Slices {
                multiprocessors: 16,
                copy_engines: 1,
                gpu: 1,
                compute: 1,
                memory_mib: 10 * 1024,
            },
            gpm: self.gpm.clone(),
            errors: self.errors.clone(),
        };
        self.mig = Some(Mig {
            enabled: true,
            max: 7,
            instances: (0..count).map(|number| Some(instance(number))).collect(),
        });
        self.utilization = None;
        self
    }
}

fn clocks([graphics, sm, memory, video]: [f64; 4]) -> Clocks {
    Clocks {
        graphics: Some(graphics.into()),
        sm: Some(sm.into()),
        memory: Some(memory.into()),
        video: Some(video.into()),
    }
}
