//! Measures the memory service of axon against other allocators.

mod count;
mod setup;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    count::run(number(1, 0), number(2, 0), number(3, 1) as u64, number(4, 1000));
}
