//! The systems that are compared.

use clap::ValueEnum;

/// Which system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// No dispatcher: the unavoidable writes, by a plain client.
    Floor,
    /// Hub and agents.
    Ours,
    /// Stock MultiKueue, all client limits raised.
    StockRaised,
    /// Stock MultiKueue as shipped.
    Stock,
}

impl Kind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ours => "ours",
            Self::StockRaised => "stock raised",
            Self::Stock => "stock as shipped",
        }
    }
}
