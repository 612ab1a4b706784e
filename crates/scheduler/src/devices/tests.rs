mod agreement;
mod ask;
mod kit;
mod ledger;
mod models;
mod written;
