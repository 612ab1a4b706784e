//! Random operations. At every step, the charge is at least what the GPU has allocated and at most
//! the limit. In the end it is zero.

use std::fmt::Debug;

use crate::call;
use crate::cuda::{CONTEXT, Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY};
use crate::inside;

const LIMIT: u64 = 3 * GIB;

/// Steps of a run; their requests add up to many times the limit.
const STEPS: u32 = 1200;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn bytes(&mut self) -> u64 {
        let small = self.below(4) > 0;
        let most = if small { 40 } else { 700 };
        (1 + self.below(most)) * 2 * MIB
    }

    fn taken<T>(&mut self, list: &mut Vec<T>) -> Option<T> {
        let length = list.len() as u64;
        (length > 0).then(|| list.swap_remove(usize::try_from(self.below(length)).unwrap()))
    }
}

/// Memory of the program.
#[derive(Default)]
struct Held {
    /// Handles to release.
    handles: Vec<(u64, u64)>,
    /// Addresses, bytes, and whether memory is mapped there.
    mapped: Vec<(u64, u64)>,
    /// In allocation order: memory of destroyed pools is freed, too.
    pooled: Vec<u64>,
    pools: Vec<usize>,
    arrays: Vec<usize>,
    mipmaps: Vec<usize>,
    plain: Vec<u64>,
    graphs: Vec<(usize, Option<u64>)>,
    /// Of graphs that left their memory allocated.
    left: Vec<u64>,
}

/// A request succeeds, or is refused for lack of memory and nothing else.
fn granted<T: Debug>(answer: Result<T, u32>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(OUT_OF_MEMORY) => None,
        Err(code) => panic!("refused with {code}"),
    }
}

impl Held {
    fn step(&mut self, cuda: &Cuda, random: &mut Random) {
        match random.below(22) {
            0 | 1 => {
                let bytes = random.bytes();
                self.handles
                    .extend(granted(cuda.create(bytes, FIRST_GPU)).map(|handle| (handle, bytes)));
            }
            2 | 3 => {
                if let Some((handle, bytes)) = random.taken(&mut self.handles) {
                    let address = cuda.reserve(bytes);
                    assert_eq!(cuda.map(address, bytes, handle), 0);
                    self.mapped.push((address, bytes));
                    self.handles.push((handle, bytes));
                }
            }
            4 | 5 => {
                if let Some((handle, _)) = random.taken(&mut self.handles) {
                    assert_eq!(cuda.release(handle), 0);
                }
            }
            6 | 7 => {
                if let Some((address, bytes)) = random.taken(&mut self.mapped) {
                    assert_eq!(cuda.unmap(address, bytes), 0);
                }
            }
            8 => {
                if let Some((address, bytes)) = random.taken(&mut self.mapped) {
                    let mut handle = 0;
                    let code = call!(cuda, cuMemRetainAllocationHandle(
                        &raw mut handle => *mut u64, address => u64));
                    assert_eq!(code, 0);
                    self.handles.push((handle, bytes));
                    self.mapped.push((address, bytes));
                }
            }
            9..=11 => {
                let pool = random.below(self.pools.len() as u64 + 1);
                let pool = self.pools.get(usize::try_from(pool).unwrap()).copied();
                // Includes odd sizes: pools have their own granularity.
                let bytes = random.bytes() - random.below(MIB);
                self.pooled.extend(granted(cuda.allocate_async(bytes, pool, 0)));
            }
            12 | 13 => {
                if let Some(address) = random.taken(&mut self.pooled) {
                    let code = if random.below(4) == 0 {
                        cuda.free(address)
                    } else {
                        cuda.free_async(address, 0)
                    };
                    assert_eq!(code, 0);
                }
            }
            14 => match random.below(6) {
                0 => assert_eq!(cuda.synchronize(), 0),
                1 => {
                    if let Some(pool) = random.taken(&mut self.pools) {
                        assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
                    }
                }
                2 => {
                    if let Some(pool) = random.taken(&mut self.pools) {
                        assert_eq!(cuda.trim(pool), 0);
                        self.pools.push(pool);
                    }
                }
                3 => assert_eq!(cuda.trim_graphs(), 0),
                4 => {
                    let limit = u32::try_from(random.below(3)).unwrap();
                    let value = [1 + random.below(4096), random.bytes(), random.bytes()];
                    granted(crate::cuda::ok(cuda.set_limit(limit, value[limit as usize]), ()));
                }
                _ => {
                    let pool = cuda.pool(FIRST_GPU).unwrap();
                    if random.below(2) == 0 {
                        cuda.keep_all(pool);
                    }
                    self.pools.push(pool);
                }
            },
            15 => {
                let side = 64 * (1 + random.below(40));
                self.arrays.extend(granted(cuda.array(side, 1 + random.below(3000))));
            }
            16 => {
                let sides = [64 * (1 + random.below(20)), 1 + random.below(500), random.below(8)];
                let levels = 1 + u32::try_from(random.below(8)).unwrap();
                self.mipmaps.extend(granted(cuda.mipmap(sides, levels)));
            }
            17 => {
                if let Some(array) = random.taken(&mut self.arrays) {
                    assert_eq!(cuda.destroy_array(array), 0);
                }
                if let Some(array) = random.taken(&mut self.mipmaps) {
                    assert_eq!(cuda.destroy_mipmap(array), 0);
                }
            }
            // Larger than allocations that share a granule: the driver rounds up the sum of small
            // allocations.
            18 => {
                // Pieces of slabs, and sizes that are no multiple of a granule.
                let is_piece = random.below(2) == 0;
                let bytes = if is_piece {
                    1 + random.below(MIB)
                } else {
                    random.bytes() - random.below(MIB)
                };
                self.plain.extend(granted(cuda.allocate(bytes)));
            }
            19 => {
                if let Some(address) = random.taken(&mut self.plain) {
                    assert_eq!(cuda.free(address), 0);
                }
            }
            20 => {
                let graph = cuda.graph();
                let (mut node, mut last) = (0, 0);
                for _ in 0..=random.below(3) {
                    let (allocation, address) = cuda.add_allocation(graph, node, random.bytes());
                    cuda.add_free(graph, allocation, address);
                    (node, last) = (allocation, address);
                }
                let leaves = random.below(3) == 0;
                if leaves {
                    (_, last) = cuda.add_allocation(graph, node, random.bytes());
                }
                let exec = cuda.instantiate(graph, 0).unwrap();
                self.graphs.push((exec, leaves.then_some(last)));
            }
            _ => {
                if let Some((exec, left)) = random.taken(&mut self.graphs) {
                    let is_launched =
                        granted(crate::cuda::ok(cuda.launch_graph(exec), ())).is_some();
                    match left {
                        // A graph that leaves memory is launched again only after that was freed.
                        Some(address) if is_launched => self.left.push(address),
                        _ => self.graphs.push((exec, left)),
                    }
                }
                if let Some(address) = random.taken(&mut self.left) {
                    assert_eq!(cuda.free(address), 0);
                }
            }
        }
    }

    fn give_all_back(self, cuda: &Cuda) {
        for (handle, _) in self.handles {
            assert_eq!(cuda.release(handle), 0);
        }
        for (address, bytes) in self.mapped {
            assert_eq!(cuda.unmap(address, bytes), 0);
        }
        for address in self.pooled.into_iter().chain(self.plain).chain(self.left) {
            assert_eq!(cuda.free(address), 0);
        }
        for array in self.arrays {
            assert_eq!(cuda.destroy_array(array), 0);
        }
        for array in self.mipmaps {
            assert_eq!(cuda.destroy_mipmap(array), 0);
        }
        for pool in self.pools {
            assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
        }
        for limit in 0..3 {
            assert_eq!(cuda.set_limit(limit, 0), 0);
        }
        assert_eq!(cuda.trim(cuda.default_pool()), 0);
        assert_eq!(cuda.trim_graphs(), 0);
    }
}

#[test]
fn random_work_is_never_counted_for_less_than_it_has() {
    let cuda = inside!(LIMIT);
    let mut refused = false;
    for seed in 0..6 {
        let (mut random, mut held) = (Random(seed), Held::default());
        for step in 0..STEPS {
            held.step(&cuda, &mut random);
            let (counted, used) = (cuda.counted(), cuda.used());
            assert!(counted >= used, "seed {seed}, step {step}: {counted} counted, {used} used");
            assert!(counted <= LIMIT - CONTEXT, "seed {seed}, step {step}: {counted} counted");
            refused |= counted + 1400 * MIB > LIMIT - CONTEXT;
        }
        held.give_all_back(&cuda);
        assert_eq!((cuda.counted(), cuda.used()), (0, 0), "seed {seed}");
    }
    assert!(refused, "the limit was met");
}
