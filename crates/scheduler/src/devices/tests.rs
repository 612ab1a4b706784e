mod agreement;
mod ask;
mod costs;
mod kit;
mod ledger;
mod models;
mod written;
