//! `polypath serve`, `get` and `cp`, as people run them, over the loopback interface.

mod copies;
mod downloads;
mod failures;
mod https;
mod liar;
mod reports;
mod serving;
mod site;
