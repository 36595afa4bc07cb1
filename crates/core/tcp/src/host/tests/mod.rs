mod flood;
mod lifecycle;
mod network;
mod random;
mod transfer;
