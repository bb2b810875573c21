//! Processes that end: their last calls count, and what they held is free.

use super::*;

#[test]
fn what_a_process_called_right_before_its_end_is_counted() {
    side_by_side(WAYS, |runtime| {
        // The engine is the parent, which stays; its child makes the calls.
        let mut scene = Scene::new(runtime, &["--parent"]);
        scene.make("--by=mixed --bytes=1048576 --make=alloc=4 --make=launch=10");
        scene.expect_made(4 << 20);
        scene
            .program
            .tell(
                "--by=mixed --bytes=100 --make=launch=100000 --make=graph=50 --make=host_to_device=30 --exit",
            )
            .unwrap();
        scene.expect(&Told {
            kernels: 100_010,
            graphs: 50,
            copies: [30, 0, 0, 0, 0],
            bytes: [3000, 0, 0, 0, 0],
            allocations: 4,
            ..Told::default()
        });
    });
}

#[test]
fn an_engine_that_is_gone_has_no_series() {
    let mut scene = Scene::new(RuntimeCalls::Exported, &[]);
    scene.make("--bytes=1048576 --make=alloc=1 --make=launch=12345");
    scene.expect_made(1 << 20);
    scene.program.tell("--exit").unwrap();
    scene.program.wait_end().unwrap();
    scene.wait("the end of its series", |metrics| {
        scene.counts(metrics) == Told::default()
    });
}
