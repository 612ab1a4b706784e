mod allocation_patch;
mod ask;
mod assume_cache;
mod costs;
mod engine_agreement;
mod fixtures;
mod models;
