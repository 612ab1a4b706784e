mod agreement;
mod ask;
mod kit;
mod ledger;
mod models;
mod speed;
mod written;
