//! The state of the simulated world. The modules that change it do not import each other: what one does with another's part
//! is a method of [`World`].

mod cluster;
mod event;
mod hub;
mod network;
mod world;

pub(crate) use cluster::{Agent, Cluster, Pods, Stored, short};
pub(crate) use event::{Event, Process};
pub(crate) use hub::{
    Api, Change, Hub, LostStore, News, Object, Show, Slot, Status, Term, WriteJob, WriteReply,
};
pub(crate) use network::{Link, LinkId, Network, Packet, Session};
pub(crate) use world::World;
