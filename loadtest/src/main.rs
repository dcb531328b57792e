//! Measures Pointsman beside its peers on one machine. It never claims an absolute speed.

fn main() {}
