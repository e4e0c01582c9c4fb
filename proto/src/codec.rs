//! How messages are read: what they will take in memory is known before any of it is taken.
//!
//! A message that is empty has two bytes on the wire and, once it is read, the size of its fields: a few mebibytes of them
//! would become a hundred times as much. So the parts of an [`AgentMessage`] are counted on the wire first.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::v1::{
    AgentMessage, Capacity, Certificate, CopyKeyAnswer, CopyKeyRequest, EnrolRequest,
    FlavorCapacity, Hello, HubMessage, JobTrouble, Observation, Observed, PreemptionQuote,
    QueueCapacity, Reason, RenewRequest, Taint,
};

/// What the parts of one message of an agent may take in memory beside their texts, in bytes. An agent's largest, a
/// mebibyte of observations, takes some three.
pub const MAX_UNPACKED: usize = 16 * 1024 * 1024;
/// The largest first message of a stream, in bytes: it says hello, or is a request that is alone.
pub const MAX_FIRST: usize = 64 * 1024;

/// A message that can be weighed as it lies on the wire.
pub trait Weighed: Message + Default + Send + 'static {
    /// What it would take in memory beside its texts, in bytes, as far as that is not bounded by its length.
    ///
    /// # Errors
    /// It is no such message.
    fn weigh(_wire: &[u8]) -> Result<usize, prost::DecodeError> {
        Ok(0)
    }

    /// The most bytes the first message of a stream may have.
    fn first() -> usize {
        usize::MAX
    }
}

impl Weighed for HubMessage {}
impl Weighed for Certificate {}
impl Weighed for EnrolRequest {}
impl Weighed for RenewRequest {}
impl Weighed for CopyKeyRequest {}
impl Weighed for CopyKeyAnswer {}

impl Weighed for AgentMessage {
    fn weigh(wire: &[u8]) -> Result<usize, prost::DecodeError> {
        AGENT_MESSAGE.weigh(wire)
    }

    fn first() -> usize {
        MAX_FIRST
    }
}

/// What is inside a field: so much memory for each time it is there, and fields of its own.
struct Part {
    tag: u32,
    size: usize,
    parts: &'static [Self],
}

const fn part<T>(tag: u32, parts: &'static [Part]) -> Part {
    Part { tag, size: size_of::<T>(), parts }
}

/// The fields of an agent's messages that may be there many times, or hold such.
const AGENT_MESSAGE: Part = part::<AgentMessage>(
    0,
    &[
        part::<Hello>(2, &[part::<String>(5, &[])]),
        part::<Observed>(
            3,
            &[part::<Observation>(
                3,
                &[
                    part::<Reason>(6, &[]),
                    part::<PreemptionQuote>(9, &[]),
                    part::<JobTrouble>(14, &[]),
                ],
            )],
        ),
        part::<Capacity>(
            4,
            &[part::<QueueCapacity>(
                1,
                // An entry of a map is two texts and its place in the table.
                &[part::<FlavorCapacity>(7, &[part::<[String; 3]>(7, &[]), part::<Taint>(8, &[])])],
            )],
        ),
    ],
);

impl Part {
    fn weigh(&self, mut wire: &[u8]) -> Result<usize, prost::DecodeError> {
        let mut total = 0_usize;
        while wire.has_remaining() {
            let (tag, wire_type) = decode_key(&mut wire)?;
            let part = self
                .parts
                .iter()
                .find(|part| part.tag == tag && wire_type == WireType::LengthDelimited);
            let Some(part) = part else {
                skip_field(wire_type, tag, &mut wire, DecodeContext::default())?;
                continue;
            };
            let length = usize::try_from(decode_varint(&mut wire)?).unwrap_or(usize::MAX);
            // What is cut short is no message; reading it says how.
            let inside = wire.get(..length).unwrap_or(wire);
            total = total.saturating_add(part.size);
            if !part.parts.is_empty() {
                total = total.saturating_add(part.weigh(inside)?);
            }
            wire.advance(inside.len());
        }
        Ok(total)
    }
}

/// The codec of all our services.
#[derive(Debug)]
pub struct WeighingCodec<E, D>(PhantomData<(E, D)>);

impl<E, D> Default for WeighingCodec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E: Message + Send + 'static, D: Weighed> Codec for WeighingCodec<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = ProstEncoder<E>;
    type Decoder = WeighingDecoder<D>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<E, D>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        WeighingDecoder { inner: ProstCodec::<E, D>::default().decoder(), heard: false }
    }
}

/// Reads what is not too heavy.
#[derive(Debug)]
pub struct WeighingDecoder<D> {
    inner: ProstDecoder<D>,
    heard: bool,
}

impl<D: Weighed> Decoder for WeighingDecoder<D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let wire = buf.chunk();
        let too_much = |what: &str| Status::out_of_range(what.to_owned());
        if wire.len() < buf.remaining() {
            return Err(Status::internal("a message that is not in one piece"));
        }
        if !std::mem::replace(&mut self.heard, true) && wire.len() > D::first() {
            return Err(too_much(&format!(
                "the first message has {} bytes, more than {MAX_FIRST}",
                wire.len()
            )));
        }
        let weight = D::weigh(wire).map_err(|error| Status::internal(error.to_string()))?;
        if weight > MAX_UNPACKED {
            return Err(too_much(&format!(
                "a message's parts would take {weight} bytes, more than {MAX_UNPACKED}"
            )));
        }
        self.inner.decode(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::agent_message::Kind;

    fn weight(kind: Kind) -> usize {
        AgentMessage::weigh(&AgentMessage { session_id: 1, kind: Some(kind) }.encode_to_vec())
            .unwrap()
    }

    fn observed(observations: Vec<Observation>) -> Kind {
        Kind::Observed(Observed { sequence: 1, observations, ..Observed::default() })
    }

    #[test]
    fn every_part_is_counted_wherever_it_is() {
        let empty = weight(observed(Vec::new()));
        assert_eq!(empty, size_of::<Observed>());
        let observation = size_of::<Observation>();
        assert_eq!(
            weight(observed(vec![Observation::default(); 1000])),
            empty + 1000 * observation
        );
        let reasons = Observation { reasons: vec![Reason::default(); 5], ..Observation::default() };
        assert_eq!(weight(observed(vec![reasons])), empty + observation + 5 * size_of::<Reason>());
        let flavor = FlavorCapacity {
            node_labels: [("a".to_owned(), "b".to_owned())].into(),
            taints: vec![Taint::default(); 2],
            ..FlavorCapacity::default()
        };
        let queue = QueueCapacity { flavors: vec![flavor; 3], ..QueueCapacity::default() };
        let entry = size_of::<[String; 3]>();
        let expected = size_of::<Capacity>()
            + size_of::<QueueCapacity>()
            + 3 * (size_of::<FlavorCapacity>() + entry + 2 * size_of::<Taint>());
        assert_eq!(weight(Kind::Capacity(Capacity { queues: vec![queue] })), expected);
        let kinds = vec!["batch/v1, Kind=Job".to_owned(); 2];
        let hello = Hello { software: "x".to_owned(), kinds, ..Hello::default() };
        assert_eq!(weight(Kind::Hello(hello)), size_of::<Hello>() + 2 * size_of::<String>());
        assert_eq!(weight(Kind::DesiredAck(7)), 0);
    }

    #[test]
    fn what_an_agent_says_at_most_is_far_below_the_bound() {
        // It begins a new message after a mebibyte, at 128 bytes and more for each observation.
        let one = Observation {
            workload_uid: "0".repeat(36),
            namespace: "n".repeat(30),
            name: "n".repeat(40),
            reasons: vec![Reason { code: "c".repeat(10), message: String::new() }],
            ..Observation::default()
        };
        assert!(weight(observed(vec![one; 8192])) < MAX_UNPACKED / 4);
        assert!(
            weight(observed(vec![Observation::default(); 2 << 20])) > 10 * MAX_UNPACKED,
            "and a flood is above it"
        );
    }

    #[test]
    fn what_is_no_message_is_no_weight() {
        assert!(AgentMessage::weigh(&[0xff; 20]).is_err());
        // An observation of more bytes than there are.
        assert_eq!(AgentMessage::weigh(&[0x1a, 0x7f]).unwrap(), size_of::<Observed>());
    }
}
